package ledger

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"fmt"

	"pipedeck/pipeline"
)

const schemaVersion = 2

// A row's s_ columns describe the object as it was verified, p_ the newest PUT.
// Table seen has the manifests that were read, others what they say that other
// nodes of the deck stored.
const schema = `
PRAGMA user_version = 2;
CREATE TABLE IF NOT EXISTS meta (name TEXT PRIMARY KEY, value TEXT NOT NULL) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS outputs (id INTEGER PRIMARY KEY, name TEXT NOT NULL UNIQUE);
CREATE TABLE IF NOT EXISTS manifests (id INTEGER PRIMARY KEY, key TEXT NOT NULL UNIQUE, entries INTEGER NOT NULL);
CREATE TABLE IF NOT EXISTS seen (key TEXT PRIMARY KEY) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS others (output INTEGER NOT NULL, sample TEXT NOT NULL, PRIMARY KEY (output, sample)) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS uploads (key BLOB NOT NULL, upload TEXT NOT NULL, at INTEGER NOT NULL,
  PRIMARY KEY (key, upload)) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS held (dev INTEGER NOT NULL, ino INTEGER NOT NULL, size INTEGER NOT NULL, mtime INTEGER NOT NULL,
  run TEXT NOT NULL, PRIMARY KEY (dev, ino)) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS files (
  output INTEGER NOT NULL, key BLOB NOT NULL, sample TEXT NOT NULL DEFAULT '', manifest INTEGER NOT NULL DEFAULT 0,
  s_size INTEGER, s_md5 BLOB, s_crc INTEGER, s_etag TEXT, s_dev INTEGER, s_ino INTEGER, s_mtime INTEGER, s_ctime INTEGER, s_born INTEGER,
  p_phase INTEGER NOT NULL DEFAULT 0,
  p_size INTEGER, p_md5 BLOB, p_crc INTEGER, p_etag TEXT, p_dev INTEGER, p_ino INTEGER, p_mtime INTEGER, p_ctime INTEGER, p_born INTEGER,
  PRIMARY KEY (output, key)) WITHOUT ROWID;
CREATE INDEX IF NOT EXISTS files_sample ON files (output, sample) WHERE sample <> '';`

// bind writes the binding into a new ledger and refuses a foreign one.
func (l *Ledger) bind(ctx context.Context, b Binding) error {
	fields := []struct{ name, value string }{
		{"endpoint", b.Endpoint}, {"bucket", b.Bucket}, {"prefix", b.Prefix}, {"run", b.Run}, {"deck", b.Deck},
	}
	for _, f := range fields {
		have, err := l.bindField(ctx, f.name, f.value)
		if err != nil {
			return err
		}
		if have == f.value {
			continue
		}
		free, err := l.unbind(ctx, f.name, f.value)
		if err != nil {
			return err
		}
		if !free {
			return pipeline.Problemf(pipeline.ProblemRefused,
				"give the deck a state_dir of its own, or go back to the former "+f.name,
				"cannot use the ledger: it belongs to %s %q, the spec says %q", f.name, have, f.value)
		}
	}
	id := make([]byte, 8)
	if _, err := rand.Read(id); err != nil {
		return fmt.Errorf("cannot make an agent id: %w", err)
	}
	var err error
	l.agent, err = l.bindField(ctx, "agent", hex.EncodeToString(id))
	return err
}

// unbind takes another value where nothing was ever stored under the former
// one, such as a name with a slip in it. What was tried there is forgotten.
func (l *Ledger) unbind(ctx context.Context, name, value string) (bool, error) {
	var stored bool
	err := l.write.QueryRowContext(ctx,
		"SELECT EXISTS (SELECT 1 FROM files WHERE s_size IS NOT NULL OR manifest <> 0) OR EXISTS (SELECT 1 FROM uploads) OR EXISTS (SELECT 1 FROM manifests)").Scan(&stored)
	if err != nil {
		return false, fmt.Errorf("cannot read the ledger: %w", err)
	}
	if stored {
		return false, nil
	}
	for _, statement := range []string{
		"DELETE FROM files", "DELETE FROM seen", "DELETE FROM others",
		"DELETE FROM meta WHERE name = 'known'",
	} {
		if _, err := l.write.ExecContext(ctx, statement); err != nil {
			return false, fmt.Errorf("cannot bind the ledger: %w", err)
		}
	}
	if _, err := l.write.ExecContext(ctx, "UPDATE meta SET value = ? WHERE name = ?", value, "bind."+name); err != nil {
		return false, fmt.Errorf("cannot bind the ledger: %w", err)
	}
	return true, nil
}

func (l *Ledger) bindField(ctx context.Context, name, value string) (string, error) {
	const insert = "INSERT INTO meta (name, value) VALUES (?, ?) ON CONFLICT (name) DO NOTHING"
	if _, err := l.write.ExecContext(ctx, insert, "bind."+name, value); err != nil {
		return "", fmt.Errorf("cannot bind the ledger: %w", err)
	}
	var have string
	err := l.write.QueryRowContext(ctx, "SELECT value FROM meta WHERE name = ?", "bind."+name).Scan(&have)
	if err != nil {
		return "", fmt.Errorf("cannot read the ledger's binding: %w", err)
	}
	return have, nil
}
