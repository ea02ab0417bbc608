package ssh_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"pipedeck/remote/ssh"
	"pipedeck/remote/ssh/sshtest"
)

// A node without a program has nothing to stop only if nothing lives there, and
// nothing would come back with the next agent.
func TestNothingRecorded(t *testing.T) {
	t.Parallel()
	s := sshtest.Start(t, sshtest.Options{})
	o := &operator{Laptop: sshtest.NewLaptop(t, s)}
	target, err := ssh.Resolve(s.Dest(), o.place())
	if err != nil {
		t.Fatal(err)
	}
	const worker = `"workers": {"0": {"launch": "extract-0-1", "launches": 1, "done": %, "held": ""}}`
	of := func(want, done string) string {
		return "{\n \"stages\": {\n  \"extract\": {\n   \"want\": \"" + want + "\",\n " + strings.Replace(worker, "%", done, 1) + "}}}"
	}
	for name, tc := range map[string]struct {
		deck    string
		nothing bool
	}{
		"no state":              {"-", true},
		"nothing was started":   {"", true},
		"it was stopped":        {of("", "false"), true},
		"all workers are done":  {of("running", "true"), true},
		"one would come back":   {of("running", "false"), false},
		"started and not begun": {`{"stages": {"extract": {"want": "running"}}}`, false},
		"not to be read":        {`{"stages": `, false},
	} {
		dir := filepath.Join(t.TempDir(), "state dir")
		if tc.deck != "-" {
			if err := os.Mkdir(dir, 0o700); err != nil {
				t.Fatal(err)
			}
		}
		if len(tc.deck) > 1 {
			if err := os.WriteFile(filepath.Join(dir, "deck.json"), []byte(tc.deck), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		n := ssh.NewNode(ssh.Options{Target: target, Say: t.Logf}, dir)
		r, err := n.Recorded(t.Context())
		n.Close()
		if err != nil || r.Nothing() != tc.nothing {
			t.Errorf("%s: %+v, %v", name, r, err)
		}
	}
}
