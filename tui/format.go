package tui

import (
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"

	"pipedeck/pipeline"
)

// none is what an unknown value looks like; zero is "0" and stale is "~5".
const none = "-"

// count writes n with thousands separators, or shortened from ten million on.
func count(n int64) string {
	switch {
	case n < 0:
		return "-" + count(-max(n, -math.MaxInt64))
	case n < 1000:
		return strconv.FormatInt(n, 10)
	case n < 10_000_000:
		s := strconv.FormatInt(n, 10)
		var parts []string
		for len(s) > 3 {
			parts = append([]string{s[len(s)-3:]}, parts...)
			s = s[:len(s)-3]
		}
		return strings.Join(append([]string{s}, parts...), ",")
	}
	return scaled(float64(n), []string{"", "k", "M", "G", "T", "P", "E"})
}

// counted is a count and the word that goes with it.
func counted(n int64, one, many string) string {
	return count(n) + " " + pipeline.Fit(n, one, many)
}

// bytesText writes n in decimal units: "1.4 GB".
func bytesText(n int64) string {
	return scaled(float64(n), []string{" B", " kB", " MB", " GB", " TB", " PB", " EB"})
}

// scaled writes v with three significant digits and the unit of its size.
func scaled(v float64, units []string) string {
	if math.IsNaN(v) || math.IsInf(v, 0) {
		return none
	}
	i := 0
	for math.Abs(v) >= 999.5 && i < len(units)-1 {
		v, i = v/1000, i+1
	}
	if i == 0 || math.Abs(v) >= 99.95 {
		return fmt.Sprintf("%.0f%s", v, units[i])
	}
	return fmt.Sprintf("%.1f%s", v, units[i])
}

// rateText writes a rate per second without its unit.
func rateText(v float64) string {
	switch {
	case math.IsNaN(v) || math.IsInf(v, 0):
		return none
	case v == 0:
		return "0"
	case math.Abs(v) < 99.95:
		return fmt.Sprintf("%.1f", v)
	case math.Abs(v) < 10_000:
		return count(int64(math.Round(v)))
	case math.Abs(v) > 1e18:
		return fmt.Sprintf("%.0e", v)
	}
	return scaled(v, []string{"", "k", "M", "G", "T"})
}

// lasting writes a span of time in at most six cells: 19s, 2m05s, 1h39m, 3d04h, 999d.
func lasting(seconds float64) string {
	if math.IsNaN(seconds) || math.IsInf(seconds, 0) || seconds < 0 {
		return none
	}
	seconds = min(seconds, 1e12)
	s := int64(seconds)
	switch {
	case s < 60:
		return fmt.Sprintf("%ds", s)
	case s < 3600:
		return fmt.Sprintf("%dm%02ds", s/60, s%60)
	case s < 100*3600:
		return fmt.Sprintf("%dh%02dm", s/3600, s/60%60)
	case s < 100*86400:
		return fmt.Sprintf("%dd%02dh", s/86400, s/3600%24)
	case s < 10_000*86400:
		return fmt.Sprintf("%dd", s/86400)
	}
	return ">27y"
}

// ageText writes an age with a tenth of a second while it is short.
func ageText(seconds float64) string {
	if seconds >= 0 && seconds < 9.95 {
		return fmt.Sprintf("%.1fs", seconds)
	}
	return lasting(seconds)
}

// utc writes the time of day in UTC, or a dash for no time.
func utc(t time.Time) string {
	if t.IsZero() {
		return none
	}
	return t.UTC().Format("15:04:05")
}

// opt formats a value that may be unknown.
func opt[T any](v *T, f func(T) string) string {
	if v == nil {
		return none
	}
	return f(*v)
}

// old marks a value of a source that has stopped answering.
func old(stale bool, s string) string {
	if stale && s != none && s != "" {
		return "~" + s
	}
	return s
}

// meter draws a share from 0 to 1 in w cells.
func meter(share float64, w int) string {
	if w <= 0 {
		return ""
	}
	if math.IsNaN(share) {
		share = 0
	}
	n := int(math.Round(min(1, max(0, share)) * float64(w)))
	return strings.Repeat("|", n) + strings.Repeat(".", w-n)
}

// percent writes a share; it says 100 only when all is there.
func percent(part, whole int64) string {
	if whole <= 0 {
		return none
	}
	p := float64(part) / float64(whole) * 100
	if part < whole {
		p = min(p, 99.9)
	}
	return fmt.Sprintf("%.1f%%", p)
}
