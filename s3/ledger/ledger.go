// Package ledger is the mover's durable record of each file's journey: what
// was about to be sent, what the store was seen to hold, and which manifest
// says so. It is a cache of the directory and the bucket, never the only truth.
//
// One goroutine writes; it gathers what arrives within 100 ms, or 512 records,
// into one synced commit. Readers have connections of their own.
package ledger

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"time"

	_ "modernc.org/sqlite" // the driver registers itself under "sqlite"

	"pipedeck/pipeline"
)

const (
	groupRecords = 512
	groupDelay   = 100 * time.Millisecond
	// urgentDelay lets uploads that wait for the same sync share it.
	urgentDelay = 2 * time.Millisecond
	readers     = 4
)

// Binding says what a ledger is about. Facts about one bucket are never
// believed of another.
type Binding struct {
	Endpoint, Bucket, Prefix, Run, Deck string
}

// Ledger is the open database. Its methods may be called from any goroutine.
type Ledger struct {
	write *sql.DB
	read  *sql.DB
	stmts statements
	ops   chan op
	stop  chan struct{}
	done  chan struct{}
	once  sync.Once
	fresh bool
	aside string
	agent string
	// before is the run that the state directory was used for until now.
	before string
	// held says that files of other runs were ever recorded.
	held atomic.Bool
}

// Open opens or makes the ledger at path and checks it. A database that is
// broken is moved aside, never deleted, and a new one begins: see Fresh and
// MovedAside. That of another run of the same deck and store is kept beside it,
// as ledger-RUN.db, and comes back with its run: see Before. A ledger bound to
// something else is refused with a Problem.
func Open(ctx context.Context, path string, b Binding) (*Ledger, error) {
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return nil, fmt.Errorf("cannot make the ledger's folder: %w", err)
	}
	if err := switchRun(ctx, path, b); err != nil {
		return nil, err
	}
	return openOrRenew(ctx, path, b)
}

func openOrRenew(ctx context.Context, path string, b Binding) (*Ledger, error) {
	l, err := open(ctx, path, b)
	if err == nil {
		return l, nil
	}
	var p *pipeline.Problem
	if errors.As(err, &p) || !broken(err) {
		return nil, err
	}
	aside, moveErr := moveAside(path)
	if moveErr != nil {
		return nil, errors.Join(err, moveErr)
	}
	l, err = open(ctx, path, b)
	if err != nil {
		return nil, err
	}
	l.aside = aside
	return l, nil
}

func open(ctx context.Context, path string, b Binding) (*Ledger, error) {
	_, statErr := os.Stat(path)
	if err := private(path, os.IsNotExist(statErr)); err != nil {
		return nil, err
	}
	write, err := connect(path, "_pragma=synchronous(FULL)&_txlock=immediate")
	if err != nil {
		return nil, err
	}
	write.SetMaxOpenConns(1)
	l := &Ledger{
		write: write, fresh: os.IsNotExist(statErr),
		ops: make(chan op, groupRecords), stop: make(chan struct{}), done: make(chan struct{}),
	}
	if err := l.prepare(ctx, b); err != nil {
		return nil, errors.Join(err, write.Close())
	}
	l.read, err = connect(path, "_pragma=query_only(1)")
	if err != nil {
		return nil, errors.Join(err, write.Close())
	}
	l.read.SetMaxOpenConns(readers)
	l.read.SetMaxIdleConns(readers) // each has its statements compiled
	if err := l.stmts.compile(ctx, l.write, l.read); err != nil {
		return nil, errors.Join(err, l.read.Close(), write.Close())
	}
	//nolint:contextcheck // a commit belongs to all who wait for it, not to who opened the ledger
	go l.writer()
	return l, nil
}

// private keeps others from reading the database, and the files that SQLite puts
// beside it with the same mode.
func private(path string, fresh bool) error {
	var err error
	if fresh {
		var f *os.File
		if f, err = os.OpenFile(path, os.O_CREATE|os.O_WRONLY, 0o600); err == nil {
			err = f.Close()
		}
	} else {
		// Not by a descriptor: to close one ends the locks that SQLite holds.
		err = os.Chmod(path, 0o600)
	}
	if err != nil {
		return fmt.Errorf("cannot open ledger %q: %w", path, err)
	}
	return nil
}

// statements are those that run for every file. To compile one costs several
// times what it costs to run it.
type statements struct {
	upsert, output       *sql.Stmt // of the writer
	row, elsewhere, held *sql.Stmt
}

func (s *statements) compile(ctx context.Context, write, read *sql.DB) error {
	for _, c := range []struct {
		db   *sql.DB
		into **sql.Stmt
		text string
	}{
		{write, &s.upsert, upsert},
		{write, &s.output, outputQuery},
		{read, &s.row, rowQuery},
		{read, &s.elsewhere, elsewhereQuery},
		{read, &s.held, heldQuery},
	} {
		stmt, err := c.db.PrepareContext(ctx, c.text)
		if err != nil {
			return brokenError{err}
		}
		*c.into = stmt
	}
	return nil
}

func connect(path, options string) (*sql.DB, error) {
	name := url.URL{
		Scheme: "file", Path: path,
		RawQuery: "_pragma=journal_mode(WAL)&_pragma=busy_timeout(10000)&" + options,
	}
	db, err := sql.Open("sqlite", name.String())
	if err != nil {
		return nil, fmt.Errorf("cannot open ledger %q: %w", path, err)
	}
	return db, nil
}

func (l *Ledger) prepare(ctx context.Context, b Binding) error {
	if !l.fresh {
		if err := check(ctx, l.write); err != nil {
			return err
		}
	}
	if _, err := l.write.ExecContext(ctx, schema); err != nil {
		return fmt.Errorf("cannot prepare the ledger: %w", err)
	}
	if err := l.bind(ctx, b); err != nil {
		return err
	}
	return l.readBefore(ctx)
}

// check reads the whole database. It runs only when the last writer did not
// close: SQLite's own journal covers the common crash, this covers the disk.
func check(ctx context.Context, db *sql.DB) error {
	var version int
	if err := db.QueryRowContext(ctx, "PRAGMA user_version").Scan(&version); err != nil {
		return brokenError{err}
	}
	if version > schemaVersion {
		return pipeline.Problemf(pipeline.ProblemRefused, "run the newer pipedeck on this node",
			"cannot open the ledger: it was written by a newer version (%d)", version)
	}
	if version > 0 && version < schemaVersion {
		return brokenError{fmt.Errorf("it has the form of version %d", version)}
	}
	var verdict string
	if err := db.QueryRowContext(ctx, "PRAGMA quick_check(1)").Scan(&verdict); err != nil {
		return brokenError{err}
	}
	if verdict != "ok" {
		return brokenError{errors.New(verdict)}
	}
	return nil
}

// Fresh says that the ledger began empty at Open: what the bucket holds must
// be found again.
func (l *Ledger) Fresh() bool { return l.fresh }

// MovedAside is where a broken database was put at Open, "" if none was.
func (l *Ledger) MovedAside() string { return l.aside }

// Agent is the random id that this ledger was born with.
func (l *Ledger) Agent() string { return l.agent }

// Close commits what is queued and closes the database.
func (l *Ledger) Close() error {
	l.once.Do(func() { close(l.stop) })
	<-l.done
	return errors.Join(l.read.Close(), l.write.Close())
}

type brokenError struct{ err error }

func (e brokenError) Error() string { return "cannot read the ledger: " + e.err.Error() }
func (e brokenError) Unwrap() error { return e.err }

func broken(err error) bool {
	var b brokenError
	return errors.As(err, &b)
}

// moveAside renames the database and its journal out of the way.
func moveAside(path string) (string, error) {
	aside := path + ".broken-" + time.Now().UTC().Format("20060102T150405.000000000")
	for _, suffix := range []string{"", "-wal", "-shm"} {
		if err := os.Rename(path+suffix, aside+suffix); err != nil && !os.IsNotExist(err) {
			return "", fmt.Errorf("cannot move the broken ledger aside: %w", err)
		}
	}
	return aside, nil
}

// putAside gives a database that is one closed file another name.
func putAside(from, to string) error {
	if err := os.Rename(from, to); err != nil {
		return fmt.Errorf("cannot keep the ledger of another run: %w", err)
	}
	return nil
}
