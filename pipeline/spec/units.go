package spec

import (
	"fmt"
	"math"
	"regexp"
	"strconv"
	"time"
)

const (
	durationHint = "units are ms, s, m and h, as in 90s or 1h30m"
	sizeHint     = "units are B, KB, MB, GB, TB (decimal) and KiB, MiB, GiB, TiB (binary), as in 512MB"
)

// ParseDuration reads a duration of the spec: Go's notation, not negative, a
// unit required except for 0.
func ParseDuration(text string) (time.Duration, error) {
	d, err := time.ParseDuration(text)
	switch {
	case err != nil && regexp.MustCompile(`^\d+$`).MatchString(text):
		return 0, fmt.Errorf("duration %q has no unit (did you mean %q?)", clip(text), clip(text)+"s")
	case err != nil:
		return 0, fmt.Errorf("%q is not a duration", clip(text))
	case d < 0:
		return 0, fmt.Errorf("duration %q is negative", clip(text))
	}
	return d, nil
}

// ParseSize reads a number of bytes: a bare integer, or a number with a
// decimal (KB, MB, GB, TB) or binary (KiB, MiB, GiB, TiB) unit.
func ParseSize(text string) (int64, error) {
	m := regexp.MustCompile(`^(\d+)(\.\d+)? ?([A-Za-z]*)$`).FindStringSubmatch(text)
	if m == nil {
		return 0, fmt.Errorf("%q is not a size", clip(text))
	}
	factor, ok := unitBytes(m[3])
	switch {
	case !ok:
		return 0, fmt.Errorf("size %q has an unknown unit%s", clip(text), didYouMean(m[3], unitNames()))
	case m[2] != "" && factor == 1:
		return 0, fmt.Errorf("size %q is not a whole number of bytes", clip(text))
	}
	whole, err := strconv.ParseInt(m[1], 10, 64)
	if err != nil || whole > (math.MaxInt64-factor)/factor {
		return 0, fmt.Errorf("size %q is too large", clip(text))
	}
	part := 0.0
	if m[2] != "" {
		if part, err = strconv.ParseFloat("0"+m[2], 64); err != nil {
			return 0, fmt.Errorf("%q is not a size", clip(text))
		}
	}
	return whole*factor + int64(math.Round(part*float64(factor))), nil
}

func unitNames() []string {
	return []string{"B", "KB", "MB", "GB", "TB", "KiB", "MiB", "GiB", "TiB"}
}

func unitBytes(unit string) (int64, bool) {
	switch unit {
	case "", "B":
		return 1, true
	case "KB", "kB":
		return 1e3, true
	case "MB":
		return 1e6, true
	case "GB":
		return 1e9, true
	case "TB":
		return 1e12, true
	case "KiB":
		return 1 << 10, true
	case "MiB":
		return 1 << 20, true
	case "GiB":
		return 1 << 30, true
	case "TiB":
		return 1 << 40, true
	}
	return 0, false
}
