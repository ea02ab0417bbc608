package tui

import (
	"testing"

	"pipedeck/pipeline"
)

func TestHeaderSaysHowTheNodeIsReached(t *testing.T) {
	t.Parallel()
	for via, want := range map[string]string{
		"": "", "ssh root@n:22": "ssh", "ssh root@n:22, through dial-stdio (forwarding refused)": "ssh, dial-stdio",
		"ssh root@n:22, without an agent": "no agent",
	} {
		b := board{node: pipeline.NodeSnapshot{Link: pipeline.Link{Via: &via}}}
		if got := viaText(b); got != want {
			t.Errorf("%q is shown as %q, want %q", via, got, want)
		}
	}
	if got := viaText(board{}); got != "" {
		t.Errorf("a local node is reached %q", got)
	}
}
