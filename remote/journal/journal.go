// Package journal keeps the append-only record of a deck's actions: one JSON
// object a line, each chained to the one before by its hash.
package journal

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"sync"
	"time"

	"pipedeck/pipeline"
)

var _ pipeline.Journal = (*Journal)(nil)

// Journal is one open journal file. Its methods may be called concurrently;
// only one process may have it open for appending.
type Journal struct {
	mu   sync.Mutex
	f    *os.File
	size int64
	seq  int64
	prev string // hash of the last record
	room int64  // up to where the file has its place on disk
	full error  // why there is no more of it
}

// reserve is how much a journal can grow on a full disk: about 2,000 records.
const reserve = 1 << 20

// Open opens the journal at path, or makes it. A last line that a crash left
// torn is cut off and kept in a record of kind "agent" that says so.
func Open(path string) (*Journal, error) {
	f, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR|os.O_APPEND, 0o600)
	if err != nil {
		return nil, fmt.Errorf("cannot open journal: %w", err)
	}
	j := &Journal{f: f}
	if err := j.recover(); err != nil {
		f.Close()
		return nil, fmt.Errorf("cannot open journal %q: %w", path, err)
	}
	j.keepRoom()
	return j, syncDir(filepath.Dir(path))
}

// recover finds the last good record and reports what lies behind it.
func (j *Journal) recover() error {
	info, err := j.f.Stat()
	if err != nil {
		return err
	}
	last, end, err := lastGood(j.f, info.Size())
	if err != nil {
		return err
	}
	j.size, j.seq, j.prev = end, last.Seq, last.Hash
	if end == info.Size() {
		return nil
	}
	torn := make([]byte, min(info.Size()-end, tornLimit))
	if _, err := j.f.ReadAt(torn, end); err != nil {
		return err
	}
	return j.mend(torn, info.Size()-end)
}

// tornLimit bounds how much of a torn end is kept.
const tornLimit = 64 << 10

// mend replaces a torn end by the record that keeps it. It writes over the torn
// bytes in one go and only then cuts what is left, so that a crash in here
// leaves a torn end again and never a journal that says nothing of it.
func (j *Journal) mend(torn []byte, n int64) error {
	line, hash, err := j.encode(pipeline.JournalRecord{
		At: time.Now(), Kind: "agent",
		Text: fmt.Sprintf("the last record was torn by a crash: %d bytes were cut off and are kept here", n),
		Data: map[string]any{"torn": torn},
	})
	if err != nil {
		return err
	}
	w, err := os.OpenFile(j.f.Name(), os.O_WRONLY, 0)
	if err != nil {
		return err
	}
	defer w.Close()
	if _, err := w.WriteAt(line, j.size); err != nil {
		return err
	}
	if err := w.Truncate(j.size + int64(len(line))); err != nil {
		return err
	}
	j.wrote(line, hash)
	return w.Sync()
}

// Append implements pipeline.Journal. The record is on disk when it returns;
// after an error the journal is as it was before.
func (j *Journal) Append(rec pipeline.JournalRecord) error {
	j.mu.Lock()
	defer j.mu.Unlock()
	line, hash, err := j.encode(rec)
	if err != nil {
		return err
	}
	_, err = j.f.Write(line)
	if err == nil {
		err = j.f.Sync()
	}
	if err != nil {
		// Half a line in the middle would be a broken chain. The cut gives up
		// what was reserved.
		err = errors.Join(err, j.f.Truncate(j.size))
		j.room = j.size
		j.keepRoom()
		return fmt.Errorf("cannot write journal: %w", err)
	}
	j.wrote(line, hash)
	j.keepRoom()
	return nil
}

// keepRoom reserves what the next records need, well before it is used up.
func (j *Journal) keepRoom() {
	if j.room-j.size > reserve/2 {
		return
	}
	if j.full = allocate(j.f, j.size, reserve); j.full == nil {
		j.room = j.size + reserve
	}
}

// Room returns how many bytes of records can be written on a full disk, and why
// it is not more: nil while the disk has room. It is an error, too, where the
// filesystem cannot reserve.
func (j *Journal) Room() (int64, error) {
	j.mu.Lock()
	defer j.mu.Unlock()
	return max(j.room-j.size, 0), j.full
}

func (j *Journal) wrote(line []byte, hash string) {
	j.size += int64(len(line))
	j.seq++
	j.prev = hash
}

// encode makes the line of the next record. Hash is its last field: the hash
// is over the previous hash and the line with an empty one, so that it can be
// checked on the bytes as they are.
func (j *Journal) encode(rec pipeline.JournalRecord) ([]byte, string, error) {
	rec.Seq, rec.Prev, rec.Hash = j.seq+1, j.prev, ""
	rec.At = rec.At.UTC().Round(0)
	open, err := json.Marshal(rec)
	if err != nil {
		return nil, "", fmt.Errorf("cannot encode journal record: %w", err)
	}
	hash := chain(j.prev, open)
	line := append(bytes.TrimSuffix(open, []byte(`"}`)), hash...)
	return append(line, "\"}\n"...), hash, nil
}

func chain(prev string, open []byte) string {
	h := sha256.New()
	h.Write([]byte(prev))
	h.Write(open)
	return hex.EncodeToString(h.Sum(nil))
}

// Read implements pipeline.Journal: the newest limit records, oldest first;
// limit 0: all. A line that can not be read is a record of kind "unknown".
func (j *Journal) Read(limit int) ([]pipeline.JournalRecord, error) {
	j.mu.Lock()
	size := j.size
	j.mu.Unlock()
	from := int64(0)
	if limit > 0 {
		var err error
		if from, err = startOfLast(j.f, size, limit); err != nil {
			return nil, fmt.Errorf("cannot read journal: %w", err)
		}
	}
	data := make([]byte, size-from)
	if _, err := io.ReadFull(io.NewSectionReader(j.f, from, size-from), data); err != nil {
		return nil, fmt.Errorf("cannot read journal: %w", err)
	}
	var out []pipeline.JournalRecord
	for line := range bytes.Lines(data) {
		var rec pipeline.JournalRecord
		if err := json.Unmarshal(line, &rec); err != nil {
			rec = pipeline.JournalRecord{Kind: "unknown", Text: "this record can not be read: " + err.Error()}
		}
		out = append(out, rec)
	}
	return out, nil
}

// Close closes the file.
func (j *Journal) Close() error { return j.f.Close() }

func syncDir(dir string) error {
	d, err := os.Open(dir)
	if err != nil {
		return fmt.Errorf("cannot sync journal folder: %w", err)
	}
	defer d.Close()
	if err := d.Sync(); err != nil {
		return fmt.Errorf("cannot sync journal folder: %w", err)
	}
	return nil
}
