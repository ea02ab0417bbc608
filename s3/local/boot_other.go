//go:build !linux

package local

import "time"

// Boot is not known here.
func Boot() (id string, up time.Duration) { return "", 0 }
