package wire

import (
	"io"
	"os"
	"strings"

	"pipedeck/pipeline"
)

// tailBytes bounds how much of a log LastLines looks at.
const tailBytes = 8 << 10

// LogHint is a hint that shows the last n lines of a log, cleaned.
func LogHint(path string, n int) string {
	lines := strings.Split(LastLines(path, n), "\n")
	for i, line := range lines {
		lines[i] = pipeline.Clean(line)
	}
	return "last lines of " + path + ":\n" + strings.Join(lines, "\n")
}

// LastLines returns the last n lines of a log, or "" if it cannot be read.
// The text is raw: whoever shows it cleans it.
func LastLines(path string, n int) string {
	f, err := os.Open(path)
	if err != nil {
		return ""
	}
	defer func() { _ = f.Close() }()
	if size, err := f.Seek(0, io.SeekEnd); err == nil {
		_, _ = f.Seek(max(0, size-tailBytes), io.SeekStart)
	}
	data, err := io.ReadAll(io.LimitReader(f, tailBytes))
	if err != nil {
		return ""
	}
	lines := strings.Split(strings.TrimRight(string(data), "\n"), "\n")
	return strings.Join(lines[max(0, len(lines)-n):], "\n")
}
