package deck

import (
	"bytes"
	"compress/gzip"
	"encoding/gob"
	"fmt"
	"path"
	"slices"
	"strings"

	"pipedeck/pipeline"
	"pipedeck/pipeline/engine"
)

// maxList bounds a plan's list of files on disk, compressed.
const maxList = 1 << 30

// listPath is where the files that an action may move are listed while it is
// under way: a new agent must find exactly what was confirmed.
func (d *Deck) listPath(action string) string {
	return path.Join(d.sp.StateDir, "plans", action+".list")
}

// writeList keeps names as the directory has them: JSON would change those
// that are not UTF-8.
func (d *Deck) writeList(action string, list []pipeline.ListedFile) error {
	var buf bytes.Buffer
	zip := gzip.NewWriter(&buf)
	if err := gob.NewEncoder(zip).Encode(list); err != nil {
		return fmt.Errorf("cannot list the files of action %q: %w", action, err)
	}
	if err := zip.Close(); err != nil {
		return fmt.Errorf("cannot list the files of action %q: %w", action, err)
	}
	if err := d.p.Files.WriteFile(d.listPath(action), buf.Bytes()); err != nil {
		return pipeline.Wrapf(err, "cannot list the files of action %q, so nothing was moved", action)
	}
	return nil
}

func (d *Deck) readList(action string) ([]pipeline.ListedFile, error) {
	raw, _, err := d.p.Files.ReadFile(d.listPath(action), maxList)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", errNoList, err)
	}
	zip, err := gzip.NewReader(bytes.NewReader(raw))
	if err != nil {
		return nil, fmt.Errorf("%w: %w", errNoList, err)
	}
	var list []pipeline.ListedFile
	if err := gob.NewDecoder(zip).Decode(&list); err != nil {
		return nil, fmt.Errorf("%w: %w", errNoList, err)
	}
	return list, nil
}

// forgetList removes the list of an ended action.
func (d *Deck) forgetList(action string) {
	if err := d.p.Files.Remove(d.listPath(action)); err != nil {
		d.notice(pipeline.Warn, "agent", "%v", err)
	}
}

// forgetLists removes what agents that died left of actions that ended, or
// never began.
func (d *Deck) forgetLists(open []engine.Open) {
	paths, err := d.p.Files.Glob(d.listPath("*"))
	if err != nil {
		d.notice(pipeline.Warn, "agent", "%v", err)
		return
	}
	for _, p := range paths {
		action := strings.TrimSuffix(path.Base(p), ".list")
		if !slices.ContainsFunc(open, func(o engine.Open) bool { return o.Action.ID == action }) {
			d.forgetList(action)
		}
	}
}
