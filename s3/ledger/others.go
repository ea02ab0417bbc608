package ledger

import (
	"context"
	"fmt"
)

// Others is what one manifest in the bucket says that another node stored.
type Others struct {
	Manifest string   // its key
	Samples  []string // ids that it names; none where the rows say it
}

// SaveOthers records manifests that were read, with what another node stored of
// an output, in one synced commit: they are not read again.
func (l *Ledger) SaveOthers(output string, read ...Others) error {
	if len(read) == 0 {
		return nil
	}
	return l.submit(true, len(read), func(ctx context.Context, g *group) error {
		id, err := g.output(ctx, output)
		if err != nil {
			return err
		}
		sample, err := g.PrepareContext(ctx, "INSERT OR IGNORE INTO others (output, sample) VALUES (?, ?)")
		if err != nil {
			return err
		}
		defer func() { _ = sample.Close() }()
		for _, r := range read {
			if _, err := g.ExecContext(ctx, "INSERT OR IGNORE INTO seen (key) VALUES (?)", r.Manifest); err != nil {
				return err
			}
			for _, s := range r.Samples {
				if _, err := sample.ExecContext(ctx, id, s); err != nil {
					return err
				}
			}
		}
		return nil
	})
}

// Manifests are the keys of those that this ledger wrote or read.
func (l *Ledger) Manifests(ctx context.Context) (map[string]bool, error) {
	known := map[string]bool{}
	err := l.texts(ctx, func(key string) { known[key] = true }, "SELECT key FROM manifests UNION SELECT key FROM seen")
	return known, err
}

// OtherSamples calls visit for every sample id of an output that another node
// stored, as far as its manifests were read.
func (l *Ledger) OtherSamples(ctx context.Context, output string, visit func(id string)) error {
	return l.texts(ctx, visit, "SELECT sample FROM others WHERE output = (SELECT id FROM outputs WHERE name = ?)", output)
}

// texts visits the one column of a query.
func (l *Ledger) texts(ctx context.Context, visit func(string), query string, args ...any) error {
	rows, err := l.read.QueryContext(ctx, query, args...)
	if err != nil {
		return fmt.Errorf("cannot read the ledger: %w", err)
	}
	defer func() { _ = rows.Close() }()
	for rows.Next() {
		var text string
		if err := rows.Scan(&text); err != nil {
			return fmt.Errorf("cannot read the ledger: %w", err)
		}
		visit(text)
	}
	return rows.Err()
}
