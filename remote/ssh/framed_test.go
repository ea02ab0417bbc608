package ssh

import (
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

// Whatever a shell prints around them, the marked lines come through and nothing
// else does.
func TestFramedFindsItsLinesInNoise(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		mark := nonce()
		noise := rapid.StringMatching(`([a-z ]{0,10}\r?\n?){0,4}`)
		value := rapid.StringMatching(`[ -~]{0,20}`)
		var out strings.Builder
		var want []string
		for range rapid.IntRange(0, 5).Draw(t, "lines") {
			v := value.Draw(t, "value")
			out.WriteString(noise.Draw(t, "noise") + "\n" + mark + " key " + v + "\n")
			want = append(want, v)
		}
		out.WriteString(noise.Draw(t, "end"))
		if got := framed(out.String(), mark)["key"]; !slices.Equal(got, want) {
			t.Fatalf("%q, want %q", got, want)
		}
	})
}

func TestShellWord(t *testing.T) {
	t.Parallel()
	for word, ok := range map[string]bool{"/a/b c": true, "": false, "it's": false, "a!b": false, `a\b`: false, "a\nb": false, "$x`y`": true} {
		if _, got := shellWord(word); got != ok {
			t.Errorf("%q: %v", word, got)
		}
	}
}

func TestParseProbe(t *testing.T) {
	t.Parallel()
	p := parseProbe(map[string][]string{
		"kernel": {"Linux"}, "machine": {"aarch64"}, "uid": {"0"}, "home": {"/root"},
		"base": {"/root/x", "/opt/y z", "/dev/shm/w"}, "good": {"/root/x", "/opt/y z"}, "bad": {"/dev/shm/w runs no programs (noexec)"},
		"free": {"1000 /root/x", "9000000 /opt/y z"}, "have": {"/opt/y z/bin/1-a/pipedeck"},
	})
	if p.Arch != "arm64" || len(p.Bases) != 3 || p.Bases[2].Reason != "runs no programs (noexec)" || len(p.Bases[1].Installed) != 1 {
		t.Fatalf("%+v", p)
	}
	if b, err := p.usable(&Target{}, 50_000_000); err != nil || b.Dir != "/opt/y z" {
		t.Errorf("%+v, %v", b, err)
	}
	if _, err := p.usable(&Target{}, 50_000_000_000); err == nil || !strings.Contains(err.Error(), "MB free") {
		t.Errorf("%v", err)
	}
	if err := p.supported(&Target{}); err != nil {
		t.Error(err)
	}
	p.Kernel = "Darwin"
	if p.supported(&Target{}) == nil {
		t.Error("a Mac is no node")
	}
}

func TestProgramsForAnUnknownMachineAreNone(t *testing.T) {
	t.Parallel()
	if p := parseProbe(map[string][]string{"machine": {"riscv64"}}); p.Arch != "" || p.UID != -1 {
		t.Errorf("%+v", p)
	}
}
