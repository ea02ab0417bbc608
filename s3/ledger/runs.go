package ledger

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
)

const (
	// MetaPaused is the one value that outlives a change of the run: "1" while
	// the operator holds all uploads.
	MetaPaused = "paused"
	metaBefore = "run.before"
)

// Held is a local file that was there when the run of the state directory
// changed, and the run that it belongs to.
type Held struct {
	Dev, Ino uint64
	Size     int64
	MTimeNS  int64
	Run      string
}

// pathOf is where the ledger of a run that is not the current one is kept.
func pathOf(path, run string) string {
	ext := filepath.Ext(path)
	return strings.TrimSuffix(path, ext) + "-" + run + ext
}

// switchRun makes path the ledger of b.Run, if it is that of another run of
// the same deck and store. The new one is whole, and knows which run was
// before, when it takes the place of the old one.
func switchRun(ctx context.Context, path string, b Binding) error {
	mine := pathOf(path, b.Run)
	have, ok := boundTo(ctx, path)
	if !exists(path) {
		if !exists(mine) {
			return nil // the first run here
		}
		return takePlace(mine, path) // a switch was interrupted
	}
	former := have.Run
	have.Run = b.Run
	if !ok || former == b.Run || have != b {
		return nil
	}
	if err := prepareRun(ctx, path, mine, former, b); err != nil {
		return err
	}
	kept := pathOf(path, former)
	if exists(kept) {
		if _, err := moveAside(kept); err != nil {
			return err
		}
	}
	if err := fold(ctx, path); err != nil {
		return err
	}
	if err := putAside(path, kept); err != nil {
		return err
	}
	return takePlace(mine, path)
}

// exists says that a path may be taken: only a clear "no" is one.
func exists(path string) bool {
	_, err := os.Lstat(path)
	return !os.IsNotExist(err)
}

func takePlace(mine, path string) error {
	if err := putAside(mine, path); err != nil {
		return err
	}
	return syncDir(filepath.Dir(path))
}

// prepareRun makes the ledger of a run ready to take its place.
func prepareRun(ctx context.Context, path, mine, former string, b Binding) error {
	old := b
	old.Run = former
	from, err := open(ctx, path, old)
	if err != nil {
		return err
	}
	to, err := openOrRenew(ctx, mine, b)
	if err != nil {
		return errors.Join(err, from.Close())
	}
	err = handOver(ctx, from, to, former)
	if err := errors.Join(err, from.Close(), to.Close()); err != nil {
		return err
	}
	return fold(ctx, mine)
}

// handOver tells a run's ledger what the one before knows of the files of
// others, and what the operator wants.
func handOver(ctx context.Context, from, to *Ledger, former string) error {
	var held []Held
	rows, err := from.read.QueryContext(ctx, "SELECT dev, ino, size, mtime, run FROM held")
	if err != nil {
		return fmt.Errorf("cannot read whose files there are: %w", err)
	}
	defer func() { _ = rows.Close() }()
	for rows.Next() {
		var h Held
		var dev, ino int64
		if err := rows.Scan(&dev, &ino, &h.Size, &h.MTimeNS, &h.Run); err != nil {
			return fmt.Errorf("cannot read whose files there are: %w", err)
		}
		h.Dev, h.Ino = uint64(dev), uint64(ino)
		held = append(held, h)
	}
	if err := rows.Err(); err != nil {
		return fmt.Errorf("cannot read whose files there are: %w", err)
	}
	paused, err := from.Meta(ctx, MetaPaused)
	if err != nil {
		return err
	}
	return to.submit(true, len(held)+2, func(ctx context.Context, tx *group) error {
		if _, err := tx.ExecContext(ctx, "DELETE FROM held"); err != nil {
			return err
		}
		if err := tx.hold(ctx, held); err != nil {
			return err
		}
		return errors.Join(tx.setMeta(ctx, MetaPaused, paused), tx.setMeta(ctx, metaBefore, former))
	})
}

// Before is the run that this state directory was used for until now, "" if
// that was this one. Files that lie in its directories are not this run's; see
// Hold.
func (l *Ledger) Before() string { return l.before }

func (l *Ledger) readBefore(ctx context.Context) error {
	err := l.write.QueryRowContext(ctx, "SELECT value FROM meta WHERE name = ?", metaBefore).Scan(&l.before)
	if err != nil && !errors.Is(err, sql.ErrNoRows) {
		return fmt.Errorf("cannot read the ledger's run: %w", err)
	}
	var held bool
	if err := l.write.QueryRowContext(ctx, "SELECT EXISTS (SELECT 1 FROM held)").Scan(&held); err != nil {
		return fmt.Errorf("cannot read whose files there are: %w", err)
	}
	l.held.Store(held)
	return nil
}

// AnyHeld says whether Held may know any file: of most runs it knows none, and
// a million files need not be asked for one by one.
func (l *Ledger) AnyHeld() bool { return l.held.Load() }

// Hold records whose the files are that were found when the run changed. After
// it, Before is "".
func (l *Ledger) Hold(files []Held) error {
	err := l.submit(true, len(files)+1, func(ctx context.Context, tx *group) error {
		if err := tx.hold(ctx, files); err != nil {
			return err
		}
		return tx.setMeta(ctx, metaBefore, "")
	})
	if err == nil {
		l.before = ""
		l.held.Store(l.held.Load() || len(files) > 0)
	}
	return err
}

func (g *group) hold(ctx context.Context, files []Held) error {
	for i := range files {
		h := &files[i]
		_, err := g.ExecContext(ctx, "INSERT OR REPLACE INTO held (dev, ino, size, mtime, run) VALUES (?, ?, ?, ?, ?)",
			int64(h.Dev), int64(h.Ino), h.Size, h.MTimeNS, h.Run)
		if err != nil {
			return err
		}
	}
	return nil
}

const heldQuery = "SELECT size, mtime, run FROM held WHERE dev = ? AND ino = ?"

// Held returns what is recorded of the file at (dev, ino); ok is false for one
// that came after the last change of the run.
func (l *Ledger) Held(ctx context.Context, dev, ino uint64) (h Held, ok bool, err error) {
	h.Dev, h.Ino = dev, ino
	err = l.stmts.held.QueryRowContext(ctx, int64(dev), int64(ino)).
		Scan(&h.Size, &h.MTimeNS, &h.Run)
	if errors.Is(err, sql.ErrNoRows) {
		return Held{}, false, nil
	}
	if err != nil {
		return Held{}, false, fmt.Errorf("cannot read whose file it is: %w", err)
	}
	return h, true, nil
}

// boundTo reads what the database at path is about; ok is false if it is none,
// or cannot be read.
func boundTo(ctx context.Context, path string) (b Binding, ok bool) {
	if _, err := os.Stat(path); err != nil {
		return Binding{}, false
	}
	db, err := connect(path, "_pragma=query_only(1)")
	if err != nil {
		return Binding{}, false
	}
	defer func() { _ = db.Close() }()
	for name, into := range map[string]*string{
		"endpoint": &b.Endpoint, "bucket": &b.Bucket, "prefix": &b.Prefix, "run": &b.Run, "deck": &b.Deck,
	} {
		if err := db.QueryRowContext(ctx, "SELECT value FROM meta WHERE name = ?", "bind."+name).Scan(into); err != nil {
			return Binding{}, false
		}
	}
	return b, true
}

// fold ends the database's write-ahead log, so that one rename moves all of it.
func fold(ctx context.Context, path string) error {
	db, err := connect(path, "_pragma=synchronous(FULL)")
	if err != nil {
		return err
	}
	db.SetMaxOpenConns(1)
	var mode string
	err = db.QueryRowContext(ctx, "PRAGMA journal_mode=DELETE").Scan(&mode)
	if err := errors.Join(err, db.Close()); err != nil {
		return fmt.Errorf("cannot close the ledger of another run: %w", err)
	}
	if mode != "delete" {
		return fmt.Errorf("cannot close the ledger of another run: somebody has %q open", path)
	}
	return nil
}

func syncDir(dir string) error {
	d, err := os.Open(dir)
	if err != nil {
		return fmt.Errorf("cannot sync %q: %w", dir, err)
	}
	if err := errors.Join(d.Sync(), d.Close()); err != nil {
		return fmt.Errorf("cannot sync %q: %w", dir, err)
	}
	return nil
}
