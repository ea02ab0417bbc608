package ledger

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
)

const columns = `key, sample, manifest, s_size, s_md5, s_crc, s_etag, s_dev, s_ino, s_mtime, s_ctime, s_born,
 p_phase, p_size, p_md5, p_crc, p_etag, p_dev, p_ino, p_mtime, p_ctime, p_born`

const (
	rowQuery = "SELECT " + columns + ` FROM files
 WHERE output = (SELECT id FROM outputs WHERE name = ?) AND key = ?`
	elsewhereQuery = `SELECT key FROM files WHERE output = (SELECT id FROM outputs WHERE name = ?)
 AND sample = ? AND sample <> '' AND key <> ? AND s_size IS NOT NULL LIMIT 1`
)

// Row returns what is known of one key; ok is false when nothing is.
func (l *Ledger) Row(ctx context.Context, output, key string) (r Row, ok bool, err error) {
	r, err = scanRow(output, l.stmts.row.QueryRowContext(ctx, output, []byte(key)).Scan)
	if errors.Is(err, sql.ErrNoRows) {
		return Row{}, false, nil
	}
	if err != nil {
		return Row{}, false, fmt.Errorf("cannot read %q from the ledger: %w", key, err)
	}
	return r, true, nil
}

// Rows calls visit for every row of an output in key order, after the key
// after. It stops at visit's error.
func (l *Ledger) Rows(ctx context.Context, output, after string, visit func(Row) error) error {
	const query = "SELECT " + columns + ` FROM files
		WHERE output = (SELECT id FROM outputs WHERE name = ?) AND key > ? ORDER BY key`
	rows, err := l.read.QueryContext(ctx, query, output, []byte(after))
	if err != nil {
		return fmt.Errorf("cannot read the ledger: %w", err)
	}
	defer func() { _ = rows.Close() }()
	for rows.Next() {
		r, err := scanRow(output, rows.Scan)
		if err != nil {
			return fmt.Errorf("cannot read the ledger: %w", err)
		}
		if err := visit(r); err != nil {
			return err
		}
	}
	return rows.Err()
}

// Samples calls visit for every distinct sample id that is stored of an
// output, in no particular order.
func (l *Ledger) Samples(ctx context.Context, output string, visit func(id string)) error {
	const query = `SELECT DISTINCT sample FROM files WHERE output = (SELECT id FROM outputs WHERE name = ?)
		AND s_size IS NOT NULL AND sample <> ''`
	rows, err := l.read.QueryContext(ctx, query, output)
	if err != nil {
		return fmt.Errorf("cannot read sample ids from the ledger: %w", err)
	}
	defer func() { _ = rows.Close() }()
	for rows.Next() {
		var id string
		if err := rows.Scan(&id); err != nil {
			return fmt.Errorf("cannot read sample ids from the ledger: %w", err)
		}
		visit(id)
	}
	return rows.Err()
}

// Elsewhere returns another key than key that is stored with the same sample
// id, "" if there is none.
func (l *Ledger) Elsewhere(ctx context.Context, output, sample, key string) (string, error) {
	var other []byte
	err := l.stmts.elsewhere.QueryRowContext(ctx, output, sample, []byte(key)).Scan(&other)
	if err != nil && !errors.Is(err, sql.ErrNoRows) {
		return "", fmt.Errorf("cannot read sample %q from the ledger: %w", sample, err)
	}
	return string(other), nil
}

// Twins calls visit for sample ids that are stored under two keys or more, at
// most limit of them.
func (l *Ledger) Twins(ctx context.Context, output string, limit int, visit func(sample, one, other string)) error {
	const query = `SELECT sample, min(key), max(key) FROM files WHERE output = (SELECT id FROM outputs WHERE name = ?)
		AND sample <> '' AND s_size IS NOT NULL GROUP BY sample HAVING count(*) > 1 LIMIT ?`
	rows, err := l.read.QueryContext(ctx, query, output, limit)
	if err != nil {
		return fmt.Errorf("cannot read sample ids from the ledger: %w", err)
	}
	defer func() { _ = rows.Close() }()
	for rows.Next() {
		var sample string
		var one, other []byte
		if err := rows.Scan(&sample, &one, &other); err != nil {
			return fmt.Errorf("cannot read sample ids from the ledger: %w", err)
		}
		visit(sample, string(one), string(other))
	}
	return rows.Err()
}

// Counts sums what is stored, by output name.
func (l *Ledger) Counts(ctx context.Context) (map[string]Count, error) {
	const query = `SELECT o.name, count(*), coalesce(sum(f.s_size), 0),
		count(DISTINCT nullif(f.sample, '')) + count(*) FILTER (WHERE f.sample = '')
		FROM files f JOIN outputs o ON o.id = f.output WHERE f.s_size IS NOT NULL GROUP BY f.output`
	rows, err := l.read.QueryContext(ctx, query)
	if err != nil {
		return nil, fmt.Errorf("cannot count the ledger: %w", err)
	}
	defer func() { _ = rows.Close() }()
	counts := map[string]Count{}
	for rows.Next() {
		var name string
		var c Count
		if err := rows.Scan(&name, &c.Files, &c.Bytes, &c.IDs); err != nil {
			return nil, fmt.Errorf("cannot count the ledger: %w", err)
		}
		counts[name] = c
	}
	return counts, rows.Err()
}

// Meta returns a named value, "" if it was never set.
func (l *Ledger) Meta(ctx context.Context, name string) (string, error) {
	var value string
	err := l.read.QueryRowContext(ctx, "SELECT value FROM meta WHERE name = ?", name).Scan(&value)
	if errors.Is(err, sql.ErrNoRows) {
		return "", nil
	}
	if err != nil {
		return "", fmt.Errorf("cannot read %q from the ledger: %w", name, err)
	}
	return value, nil
}

// Metas returns the names below a prefix, with their values.
func (l *Ledger) Metas(ctx context.Context, prefix string) (map[string]string, error) {
	const query = "SELECT name, value FROM meta WHERE substr(name, 1, length(?)) = ?"
	rows, err := l.read.QueryContext(ctx, query, prefix, prefix)
	if err != nil {
		return nil, fmt.Errorf("cannot read the ledger: %w", err)
	}
	defer func() { _ = rows.Close() }()
	metas := map[string]string{}
	for rows.Next() {
		var name, value string
		if err := rows.Scan(&name, &value); err != nil {
			return nil, fmt.Errorf("cannot read the ledger: %w", err)
		}
		metas[name[len(prefix):]] = value
	}
	return metas, rows.Err()
}

// Upload is a multipart upload that was begun and neither completed nor
// aborted, as far as the ledger knows.
type Upload struct{ Key, ID string }

// Uploads returns the multipart uploads left open.
func (l *Ledger) Uploads(ctx context.Context) ([]Upload, error) {
	rows, err := l.read.QueryContext(ctx, "SELECT key, upload FROM uploads")
	if err != nil {
		return nil, fmt.Errorf("cannot read open uploads from the ledger: %w", err)
	}
	defer func() { _ = rows.Close() }()
	var open []Upload
	for rows.Next() {
		var u Upload
		if err := rows.Scan(&u.Key, &u.ID); err != nil {
			return nil, fmt.Errorf("cannot read open uploads from the ledger: %w", err)
		}
		open = append(open, u)
	}
	return open, rows.Err()
}

type nullCopy struct {
	size, crc, dev, ino, mtime, ctime, born sql.NullInt64
	md5                                     []byte
	etag                                    sql.NullString
}

func (n *nullCopy) fields() []any {
	return []any{&n.size, &n.md5, &n.crc, &n.etag, &n.dev, &n.ino, &n.mtime, &n.ctime, &n.born}
}

func (n *nullCopy) value() *Copy {
	if !n.size.Valid {
		return nil
	}
	c := &Copy{
		Size: n.size.Int64, CRC32C: uint32(n.crc.Int64), ETag: n.etag.String,
		Dev: uint64(n.dev.Int64), Ino: uint64(n.ino.Int64), MTimeNS: n.mtime.Int64, CTimeNS: n.ctime.Int64, Born: n.born.Int64,
	}
	copy(c.MD5[:], n.md5)
	return c
}

func scanRow(output string, scan func(...any) error) (Row, error) {
	r := Row{Output: output}
	var key []byte
	var stored, put nullCopy
	into := append([]any{&key, &r.Sample, &r.Manifest}, stored.fields()...)
	into = append(into, &r.Phase)
	into = append(into, put.fields()...)
	if err := scan(into...); err != nil {
		return Row{}, err
	}
	r.Key, r.Stored, r.Put = string(key), stored.value(), put.value()
	return r, nil
}
