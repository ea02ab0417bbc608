package journal

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"

	"pipedeck/pipeline"
)

const block = 64 << 10

// Verify checks the chain of the journal at path from its first record to its
// last, and returns how many are good. The error names the first line that is
// torn, changed or missing.
func Verify(path string) (int, error) {
	f, err := os.Open(path)
	if err != nil {
		return 0, fmt.Errorf("cannot verify journal: %w", err)
	}
	defer f.Close()
	r := bufio.NewReaderSize(f, block)
	prev, n := "", 0
	for {
		line, err := r.ReadBytes('\n')
		if errors.Is(err, io.EOF) && len(line) == 0 {
			return n, nil
		}
		if err != nil && !errors.Is(err, io.EOF) {
			return n, fmt.Errorf("cannot verify journal: %w", err)
		}
		rec, err := check(line)
		if err == nil && (rec.Prev != prev || rec.Seq != int64(n)+1) {
			err = fmt.Errorf("it does not follow record %d", n)
		}
		if err != nil {
			return n, fmt.Errorf("cannot verify journal %q, line %d: %w", path, n+1, err)
		}
		prev = rec.Hash
		n++
	}
}

// check reads one line and compares its hash.
func check(line []byte) (pipeline.JournalRecord, error) {
	var rec pipeline.JournalRecord
	body, whole := bytes.CutSuffix(line, []byte("\n"))
	if !whole {
		return rec, errors.New("it is torn")
	}
	if err := json.Unmarshal(body, &rec); err != nil {
		return rec, fmt.Errorf("it is no record: %w", err)
	}
	open, ok := bytes.CutSuffix(body, []byte(rec.Hash+`"}`))
	if !ok || rec.Hash == "" || chain(rec.Prev, append(bytes.Clone(open), `"}`...)) != rec.Hash {
		return rec, errors.New("its hash is wrong")
	}
	return rec, nil
}

// lastGood returns the last record whose hash is right and where it ends. Only
// the last line can be torn, by a crash while it was written; anything before
// it is not this function's to judge, and a journal whose last whole line is
// no record at all is refused instead of cut.
func lastGood(r io.ReaderAt, size int64) (pipeline.JournalRecord, int64, error) {
	end, err := lastNewline(r, size)
	if err != nil || end == 0 {
		return pipeline.JournalRecord{}, 0, err
	}
	for tries := 0; end > 0; tries++ {
		if tries == 2 {
			return pipeline.JournalRecord{}, 0, errors.New("its last two records are damaged: move it aside, nothing can be appended to it")
		}
		from, err := startOfLast(r, end, 1)
		if err != nil {
			return pipeline.JournalRecord{}, 0, err
		}
		line := make([]byte, end-from)
		if _, err := r.ReadAt(line, from); err != nil {
			return pipeline.JournalRecord{}, 0, err
		}
		if rec, err := check(line); err == nil {
			return rec, end, nil
		}
		end = from
	}
	return pipeline.JournalRecord{}, 0, nil
}

// lastNewline returns the offset after the last newline, 0 if there is none.
func lastNewline(r io.ReaderAt, size int64) (int64, error) {
	return scanBack(r, size, 1)
}

// startOfLast returns where the last n lines of a file that ends with a
// newline begin.
func startOfLast(r io.ReaderAt, size int64, n int) (int64, error) {
	return scanBack(r, max(size-1, 0), n)
}

// scanBack returns the offset after the n-th newline before size, counted from
// the end; 0 if there are fewer.
func scanBack(r io.ReaderAt, size int64, n int) (int64, error) {
	buf := make([]byte, block)
	for size > 0 {
		from := max(size-block, 0)
		part := buf[:size-from]
		if _, err := r.ReadAt(part, from); err != nil && !errors.Is(err, io.EOF) {
			return 0, err
		}
		for {
			i := bytes.LastIndexByte(part, '\n')
			if i < 0 {
				break
			}
			if n--; n == 0 {
				return from + int64(i) + 1, nil
			}
			part = part[:i]
		}
		size = from
	}
	return 0, nil
}
