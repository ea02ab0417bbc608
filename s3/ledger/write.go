package ledger

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"time"
)

// errClosed answers writes after Close.
var errClosed = errors.New("cannot write to the ledger: it is closed")

// op is one change; done is nil when nobody waits for it.
type op struct {
	records int
	apply   func(context.Context, *group) error
	done    chan error
}

// group is one transaction being filled.
type group struct {
	*sql.Tx
	upsert  *sql.Stmt
	lookUp  *sql.Stmt // of an output's number
	outputs map[string]int64
}

// Save writes rows and returns when they are on disk.
func (l *Ledger) Save(rows ...Row) error { return l.submit(true, len(rows), saveRows(rows)) }

// SaveLater queues rows; they are on disk within about 100 ms. Losing them in
// a crash must be harmless.
func (l *Ledger) SaveLater(rows ...Row) error { return l.submit(false, len(rows), saveRows(rows)) }

// SaveManifest records a stored manifest and the rows it holds in one synced
// commit. It sets their Manifest.
func (l *Ledger) SaveManifest(key string, rows []Row) error {
	return l.submit(true, len(rows), func(ctx context.Context, tx *group) error {
		const insert = `INSERT INTO manifests (key, entries) VALUES (?, ?)
			ON CONFLICT (key) DO UPDATE SET entries = excluded.entries RETURNING id`
		var id int64
		if err := tx.QueryRowContext(ctx, insert, key, len(rows)).Scan(&id); err != nil {
			return err
		}
		for i := range rows {
			rows[i].Manifest = id
		}
		return saveRows(rows)(ctx, tx)
	})
}

// SetMeta writes one named value durably.
func (l *Ledger) SetMeta(name, value string) error {
	return l.submit(true, 1, func(ctx context.Context, tx *group) error { return tx.setMeta(ctx, name, value) })
}

// DropMeta forgets a named value.
func (l *Ledger) DropMeta(name string) error {
	return l.submit(false, 1, func(ctx context.Context, tx *group) error {
		_, err := tx.ExecContext(ctx, "DELETE FROM meta WHERE name = ?", name)
		return err
	})
}

func (g *group) setMeta(ctx context.Context, name, value string) error {
	_, err := g.ExecContext(ctx, `INSERT INTO meta (name, value) VALUES (?, ?)
		ON CONFLICT (name) DO UPDATE SET value = excluded.value`, name, value)
	return err
}

// AddUpload remembers a multipart upload until DropUpload.
func (l *Ledger) AddUpload(key, upload string, at time.Time) error {
	return l.submit(true, 1, func(ctx context.Context, tx *group) error {
		_, err := tx.ExecContext(ctx, "INSERT OR REPLACE INTO uploads (key, upload, at) VALUES (?, ?, ?)",
			[]byte(key), upload, at.UnixNano())
		return err
	})
}

// DropUpload forgets a multipart upload that was completed or aborted.
func (l *Ledger) DropUpload(key, upload string) error {
	return l.submit(false, 1, func(ctx context.Context, tx *group) error {
		_, err := tx.ExecContext(ctx, "DELETE FROM uploads WHERE key = ? AND upload = ?", []byte(key), upload)
		return err
	})
}

func (l *Ledger) submit(wait bool, records int, apply func(context.Context, *group) error) error {
	o := op{records: records, apply: apply}
	if wait {
		o.done = make(chan error, 1)
	}
	select {
	case l.ops <- o:
	case <-l.stop:
		return errClosed
	}
	if !wait {
		return nil
	}
	select {
	case err := <-o.done:
		return err
	case <-l.done:
		// The writer may have answered just before it ended.
		select {
		case err := <-o.done:
			return err
		default:
			return errClosed
		}
	}
}

func (l *Ledger) writer() {
	defer close(l.done)
	for {
		select {
		case o := <-l.ops:
			l.commit(l.gather(o))
		case <-l.stop:
			l.drain()
			return
		}
	}
}

func (l *Ledger) drain() {
	for {
		select {
		case o := <-l.ops:
			l.commit([]op{o})
		default:
			return
		}
	}
}

// gather collects one group: until it is full, its oldest change is 100 ms
// old, or somebody waits and the others had their moment to join.
func (l *Ledger) gather(first op) []op {
	ops, records := []op{first}, first.records
	delay := groupDelay
	if first.done != nil {
		delay = urgentDelay
	}
	timer := time.NewTimer(delay)
	defer timer.Stop()
	urgent := first.done != nil
	for records < groupRecords {
		select {
		case o := <-l.ops:
			ops, records = append(ops, o), records+o.records
			if o.done != nil && !urgent {
				urgent = true
				timer.Reset(urgentDelay)
			}
		case <-timer.C:
			return ops
		case <-l.stop:
			return ops
		}
	}
	return ops
}

func (l *Ledger) commit(ops []op) {
	// Not the caller's context: one caller giving up must not undo the others.
	err := l.inTx(context.Background(), ops)
	if err != nil && l.reuseLog() {
		err = l.inTx(context.Background(), ops)
	}
	if err != nil && len(ops) > 1 {
		for _, o := range ops {
			answer(o, l.inTx(context.Background(), []op{o}))
		}
		return
	}
	for _, o := range ops {
		answer(o, err)
	}
}

// reuseLog moves what the write-ahead log holds into the database, so that the
// log begins anew in the room that it has: the disk may be full.
func (l *Ledger) reuseLog() bool {
	_, err := l.write.ExecContext(context.Background(), "PRAGMA wal_checkpoint(PASSIVE)")
	return err == nil
}

func answer(o op, err error) {
	if o.done != nil {
		o.done <- err
	}
}

func (l *Ledger) inTx(ctx context.Context, ops []op) error {
	tx, err := l.write.BeginTx(ctx, nil)
	if err != nil {
		return fmt.Errorf("cannot write to the ledger: %w", err)
	}
	g := &group{
		Tx: tx, outputs: map[string]int64{},
		upsert: tx.StmtContext(ctx, l.stmts.upsert), lookUp: tx.StmtContext(ctx, l.stmts.output),
	}
	for _, o := range ops {
		if err := o.apply(ctx, g); err != nil {
			return fmt.Errorf("cannot write to the ledger: %w", errors.Join(err, tx.Rollback()))
		}
	}
	if err := tx.Commit(); err != nil {
		return fmt.Errorf("cannot commit to the ledger: %w", err)
	}
	return nil
}

const outputQuery = "SELECT id FROM outputs WHERE name = ?"

const upsert = `INSERT INTO files (output, key, sample, manifest,
 s_size, s_md5, s_crc, s_etag, s_dev, s_ino, s_mtime, s_ctime, s_born,
 p_phase, p_size, p_md5, p_crc, p_etag, p_dev, p_ino, p_mtime, p_ctime, p_born)
 VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)
 ON CONFLICT (output, key) DO UPDATE SET sample = excluded.sample, manifest = excluded.manifest,
 s_size = excluded.s_size, s_md5 = excluded.s_md5, s_crc = excluded.s_crc, s_etag = excluded.s_etag,
 s_dev = excluded.s_dev, s_ino = excluded.s_ino, s_mtime = excluded.s_mtime, s_ctime = excluded.s_ctime, s_born = excluded.s_born,
 p_phase = excluded.p_phase, p_size = excluded.p_size, p_md5 = excluded.p_md5, p_crc = excluded.p_crc, p_etag = excluded.p_etag,
 p_dev = excluded.p_dev, p_ino = excluded.p_ino, p_mtime = excluded.p_mtime, p_ctime = excluded.p_ctime, p_born = excluded.p_born`

func saveRows(rows []Row) func(context.Context, *group) error {
	return func(ctx context.Context, g *group) error {
		for i := range rows {
			if err := g.save(ctx, &rows[i]); err != nil {
				return err
			}
		}
		return nil
	}
}

func (g *group) save(ctx context.Context, r *Row) error {
	output, err := g.output(ctx, r.Output)
	if err != nil {
		return err
	}
	_, err = g.upsert.ExecContext(ctx, rowArgs(output, r)...)
	return err
}

// output returns the number of a named output, a new one if need be.
func (g *group) output(ctx context.Context, name string) (int64, error) {
	if id, ok := g.outputs[name]; ok {
		return id, nil
	}
	var id int64
	err := g.lookUp.QueryRowContext(ctx, name).Scan(&id)
	if errors.Is(err, sql.ErrNoRows) {
		err = g.QueryRowContext(ctx, "INSERT INTO outputs (name) VALUES (?) RETURNING id", name).Scan(&id)
	}
	if err != nil {
		return 0, err
	}
	g.outputs[name] = id
	return id, nil
}

func rowArgs(output int64, r *Row) []any {
	args := []any{output, []byte(r.Key), r.Sample, r.Manifest}
	args = append(args, copyArgs(r.Stored)...)
	args = append(args, int(r.Phase))
	return append(args, copyArgs(r.Put)...)
}

func copyArgs(c *Copy) []any {
	if c == nil {
		return make([]any, 9)
	}
	return []any{c.Size, c.MD5[:], int64(c.CRC32C), c.ETag, int64(c.Dev), int64(c.Ino), c.MTimeNS, c.CTimeNS, c.Born}
}
