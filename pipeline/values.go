package pipeline

import (
	"fmt"
	"math"
	"time"
)

func orElse(s *string, other string) string {
	if s == nil || *s == "" {
		return other
	}
	return *s
}

// text returns a pointer to cleaned text, nil for none.
func text(s string) *string {
	if s == "" {
		return nil
	}
	return new(shorten(Clean(s), maxEventBytes))
}

// finite drops what is no number, or negative where nothing can be.
func finite(f *float64) *float64 {
	if f == nil || math.IsNaN(*f) || math.IsInf(*f, 0) || *f < 0 {
		return nil
	}
	return new(*f)
}

// count drops a negative number: nothing that is counted here can be.
func count(n *int64) *int64 {
	if n == nil || *n < 0 {
		return nil
	}
	return new(*n)
}

// wireTime is t in UTC, or the zero time if JSON could not carry it.
func wireTime(t time.Time) time.Time {
	t = t.UTC()
	if y := t.Year(); y < 1 || y > 9998 {
		return time.Time{}
	}
	return t
}

// moment is wireTime for an optional time.
func moment(t time.Time) *time.Time {
	t = wireTime(t)
	if t.IsZero() {
		return nil
	}
	return &t
}

// age is the time since at in seconds, never negative; nil if at is unknown.
func age(now, at time.Time) *float64 {
	if at.IsZero() {
		return nil
	}
	return new(max(0, math.Round(now.Sub(at).Seconds()*1000)/1000))
}

// Fit is the word that goes with a number: one for 1, many for all else.
func Fit[N int | int32 | int64 | uint64](n N, one, many string) string {
	if n == 1 {
		return one
	}
	return many
}

// Counted is a number and the word that goes with it: "1 file", "2 files".
func Counted[N int | int32 | int64 | uint64](n N, one, many string) string {
	return fmt.Sprintf("%d %s", n, Fit(n, one, many))
}

// CountedOf is a part of a number, and the words that go with both:
// "1 of 2 workers is", "0 of 1 worker is", "2 of 2 workers are".
func CountedOf[N int | int32 | int64 | uint64](n, of N, one, many, is, are string) string {
	if of != 1 {
		is = Fit(n, is, are)
	}
	return fmt.Sprintf("%d of %s %s", n, Counted(of, one, many), is)
}

// HumanBytes writes a size in decimal units.
func HumanBytes(n int64) string { return humanBytes(n) }

// HumanTime writes a duration in words, coarser the longer it is.
func HumanTime(d time.Duration) string { return humanTime(d) }

// humanBytes is a size for a sentence: decimal units, one digit.
func humanBytes(n int64) string {
	f, unit := float64(n), 0
	units := []string{"bytes", "kB", "MB", "GB", "TB", "PB", "EB"}
	for math.Abs(f) >= 999.95 && unit < len(units)-1 {
		f /= 1000
		unit++
	}
	if unit == 0 {
		return Counted(n, "byte", "bytes")
	}
	return fmt.Sprintf("%.1f %s", f, units[unit])
}

// humanTime is a duration for a sentence, in its largest two units.
func humanTime(d time.Duration) string {
	s := int64(max(0, d) / time.Second)
	switch {
	case s < 120:
		return fmt.Sprintf("%d s", s)
	case s < 2*3600:
		return fmt.Sprintf("%d min", s/60)
	case s < 48*3600:
		return fmt.Sprintf("%d h %d min", s/3600, s/60%60)
	default:
		return fmt.Sprintf("%d days", s/86400)
	}
}
