package proc

import (
	"io"
	"os"
	"strings"
)

// oomWords are how a program says that it ended for lack of memory: of a GPU,
// which no counter of the kernel tells, or of the node.
var oomWords = []string{"OutOfMemoryError", "CUDA out of memory", "CUDA_ERROR_OUT_OF_MEMORY", "cudaErrorMemoryAllocation"}

const (
	oomTail = 16 << 10 // how much of a log's end is looked at
	oomSaid = 300      // bytes of the line that are kept
)

// saidOutOfMemory returns the last line at the end of a log, but not before
// from, in which a worker says that it ran out of memory, or "".
func saidOutOfMemory(path string, from int64) string {
	f, err := os.Open(path)
	if err != nil {
		return ""
	}
	defer f.Close()
	size := sizeOf(path)
	if from > size {
		from = 0 // the log was rotated meanwhile
	}
	raw, err := io.ReadAll(io.NewSectionReader(f, max(from, size-oomTail), oomTail))
	if err != nil {
		return ""
	}
	said := ""
	for line := range strings.Lines(string(raw)) {
		for _, word := range oomWords {
			if strings.Contains(line, word) {
				said = strings.TrimSpace(line)
			}
		}
	}
	if len(said) > oomSaid {
		said = strings.ToValidUTF8(said[:oomSaid], "")
	}
	return said
}

// sizeOf is a file's size, 0 if it is not there.
func sizeOf(path string) int64 {
	info, err := os.Stat(path)
	if err != nil {
		return 0
	}
	return info.Size()
}
