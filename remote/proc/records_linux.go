package proc

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"pipedeck/pipeline"
)

// Files of a run directory.
const (
	runFile     = "run.json"     // the intent, before anything is started
	startedFile = "started.json" // who was started
	exitFile    = "exit.json"    // how the leader ended
	reapedFile  = "reaped.json"  // no descendant is left
	lockFile    = "shim.lock"    // held by the shim for its life
	kinFile     = "kin.json"     // of an adopted process: who belonged to it at the last look
)

// runRecord is the intent of one launch.
type runRecord struct {
	Launch pipeline.Launch `json:"launch"`
	Seq    int64           `json:"seq"` // orders the launches of one worker
	DeckID string          `json:"deck_id"`
	BootID string          `json:"boot_id"`
	PIDNS  uint64          `json:"pid_ns"`
	Ticks  uint64          `json:"ticks"` // clock of start ticks at At: nothing of this launch is older
	At     time.Time       `json:"at"`
	Lock   origin          `json:"lock"` // of shim.lock: a copied run directory has another

	Adopted *adoption `json:"adopted,omitempty"` // nil: started by a shim
}

// adoption says who was taken over. It is part of the intent: there is no
// moment at which the one is on disk and the other is not.
type adoption struct {
	startedRecord        // without a shim
	Tag           string `json:"tag,omitempty"` // launch of this deck that its environment names
}

// identity is one process, beyond the reuse of its pid.
type identity struct {
	PID   int    `json:"pid"`
	Ticks uint64 `json:"start_ticks"`
}

// startedRecord says who was started, where.
type startedRecord struct {
	BootID string    `json:"boot_id"`
	PIDNS  uint64    `json:"pid_ns"`
	Shim   identity  `json:"shim"`
	Worker identity  `json:"worker"`
	SID    int       `json:"sid"` // session of the worker
	At     time.Time `json:"at"`
}

// exitRecord says how the leader ended, or why it never began.
type exitRecord struct {
	pipeline.Exit
	NoExec string `json:"no_exec,omitempty"`
}

// writeRecord replaces path atomically; it is on disk when it returns.
func writeRecord(path string, v any) error {
	return writeBound(path, func(origin) any { return v }, func() {})
}

// writeBound is writeRecord for a record that names its own file. It calls
// written before the record is put in place.
func writeBound(path string, record func(origin) any, written func()) error {
	tmp := path + ".tmp"
	// Not emptied first: what it has of the disk, see reserveRecord, is kept.
	f, err := os.OpenFile(tmp, os.O_CREATE|os.O_WRONLY, 0o600)
	if err != nil {
		return fmt.Errorf("cannot write record: %w", err)
	}
	self, err := originOf(f)
	var data []byte
	if err == nil {
		data, err = json.Marshal(record(self))
	}
	if err == nil {
		_, err = f.Write(append(data, '\n'))
	}
	if err == nil {
		err = f.Truncate(int64(len(data)) + 1)
	}
	err = errors.Join(err, f.Sync(), f.Close())
	written()
	if err == nil {
		err = os.Rename(tmp, path)
	}
	if err != nil {
		return fmt.Errorf("cannot write record %q: %w", path, err)
	}
	return syncDir(filepath.Dir(path))
}

// writeNote replaces path atomically for the next agent. It means nothing after
// a reboot, so nobody waits for the disk.
func writeNote(path string, v any) error {
	data, err := json.Marshal(v)
	if err == nil {
		err = os.WriteFile(path+".tmp", data, 0o600)
	}
	if err == nil {
		err = os.Rename(path+".tmp", path)
	}
	return err
}

// recordRoom is more than a record of a start or an end needs.
const recordRoom = 4096

// reserveRecord takes the room on disk that writeRecord of path will need, so
// that an end can be recorded on a full disk.
func reserveRecord(path string) error {
	f, err := os.OpenFile(path+".tmp", os.O_CREATE|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	_, err = f.Write(make([]byte, recordRoom))
	return errors.Join(err, f.Sync(), f.Close())
}

func readRecord(path string, v any) error {
	data, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	if err := json.Unmarshal(data, v); err != nil {
		return fmt.Errorf("cannot read record %q: %w", path, err)
	}
	return nil
}

func syncDir(dir string) error {
	d, err := os.Open(dir)
	if err != nil {
		return fmt.Errorf("cannot sync folder: %w", err)
	}
	defer d.Close()
	if err := d.Sync(); err != nil {
		return fmt.Errorf("cannot sync folder %q: %w", dir, err)
	}
	return nil
}
