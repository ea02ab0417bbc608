package pipeline

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"slices"
	"strings"
	"time"
)

// CodeRecordName is the file in the state directory that says which code was
// pushed to the node last, as a CodeRecord.
const CodeRecordName = "sync.json"

// CodeShown bounds the files that a plan names one by one.
const CodeShown = 100

// CodeFile is one file of the operator's code.
type CodeFile struct {
	To     string `json:"to"` // below workdir
	Size   int64  `json:"size"`
	SHA256 string `json:"sha256"`
	Mode   uint32 `json:"mode"` // permission bits
}

// CodeHash tells two states of the code apart.
func CodeHash(files []CodeFile) string {
	sum := sha256.New()
	for _, f := range files {
		_, _ = fmt.Fprintf(sum, "%q %s %o\n", f.To, f.SHA256, f.Mode) // a hash never fails
	}
	return hex.EncodeToString(sum.Sum(nil))
}

// CodeRecord is what a push left: everything that the node has of the code.
type CodeRecord struct {
	Hash  string     `json:"hash"`
	Files []CodeFile `json:"files"`
	By    string     `json:"by"`
	At    time.Time  `json:"at"`
}

// Code is the code that a console wants the workers to be started with: what
// `sync` of the spec names, on the operator's machine.
type Code struct {
	Hash  string `json:"hash"`
	Files int    `json:"files"`
	// Push lists what differs on the node, the first CodeShown of them.
	Push      []CodePush `json:"push"`
	PushFiles int        `json:"push_files"`
	PushBytes int64      `json:"push_bytes"`
}

// CodePush is a file that the node does not have like this.
type CodePush struct {
	CodeFile
	New bool `json:"new"` // it has none of that name
}

// ShortHash is enough of a hash to tell it from another one on a screen.
func ShortHash(hash string) string { return hash[:min(len(hash), 12)] }

// Moved says what became of local files since a plan listed what it would push,
// by what would be pushed now.
func (c Code) Moved(now Code) string {
	if c.PushFiles > len(c.Push) || now.PushFiles > len(now.Push) {
		return fmt.Sprintf("%s then, %d now", Counted(c.Files, "file", "files"), now.Files)
	}
	then := map[string]CodePush{}
	for _, f := range c.Push {
		then[f.To] = f
	}
	var said []string
	for _, f := range now.Push {
		if old, ok := then[f.To]; !ok || old.SHA256 != f.SHA256 || old.Mode != f.Mode {
			said = append(said, f.To)
		}
		delete(then, f.To)
	}
	for to := range then {
		said = append(said, to)
	}
	slices.Sort(said)
	if now.Files != c.Files {
		said = append(said, fmt.Sprintf("%s then, %d now", Counted(c.Files, "file", "files"), now.Files))
	}
	return strings.Join(said, ", ")
}

// code makes a start wait for the code that it was planned with, and says how
// that differs from what is there and from what runs.
func (d *decision) code(t target, starts bool) {
	c := d.in.Code
	if c == nil {
		return
	}
	if starts {
		d.step(StepCode, codeTimeout, "each file of the code has the hash that was planned", t.st.Name)
	}
	text := fmt.Sprintf("code %s: %s", ShortHash(c.Hash), c.differs(starts))
	if other := otherCode(t, c.Hash); other != "" {
		text += "; " + other
	}
	d.note(text)
}

const codeNamed = 4

func (c Code) differs(pushed bool) string {
	if c.PushFiles == 0 {
		return Fit(c.Files, "its one file is", fmt.Sprintf("all %d files are", c.Files)) + " on the node"
	}
	var names []string
	for _, f := range c.Push[:min(codeNamed, len(c.Push))] {
		word := "changed "
		if f.New {
			word = "new "
		}
		names = append(names, word+Clean(f.To))
	}
	if more := c.PushFiles - len(names); more > 0 {
		names = append(names, fmt.Sprintf("and %d more", more))
	}
	what := Fit(c.PushFiles, "is", "are") + " pushed first"
	if !pushed {
		what = Fit(c.PushFiles, "differs on the node and is", "differ on the node and are") + " not pushed, since nothing is started"
	}
	return fmt.Sprintf("%d of %s, %s, %s: %s", c.PushFiles, Counted(c.Files, "file", "files"), humanBytes(c.PushBytes), what, strings.Join(names, ", "))
}

// otherCode names living workers that run with other code than this.
func otherCode(t target, hash string) string {
	var ids []string
	runs := ""
	for _, w := range t.workers() {
		if w.PID != nil && w.Code != nil && *w.Code != hash {
			ids, runs = append(ids, w.ID), *w.Code
		}
	}
	switch len(ids) {
	case 0:
		return ""
	case 1:
		return fmt.Sprintf("%s runs with %s", ids[0], ShortHash(runs))
	}
	return fmt.Sprintf("%s and %d more run with %s", ids[0], len(ids)-1, ShortHash(runs))
}
