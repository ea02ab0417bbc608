package ssh_test

import (
	"strings"
	"sync"
	"testing"

	"pipedeck/remote/ssh"
	"pipedeck/remote/ssh/sshtest"
)

// Several nodes, one of them behind a jump host, take the same encrypted key: its
// passphrase is asked for until it is right, and never again.
func TestOnePassphraseForAllNodes(t *testing.T) {
	t.Parallel()
	servers := []*sshtest.Server{sshtest.Start(t, sshtest.Options{}), sshtest.Start(t, sshtest.Options{}), sshtest.Start(t, sshtest.Options{})}
	o := &operator{Laptop: sshtest.NewLaptop(t, servers...), keys: &ssh.Keychain{}}
	raw, signer := sshtest.NewKey(t, "ed25519", "open sesame")
	for _, s := range servers {
		s.Authorize(t, signer.PublicKey())
	}
	o.Write(t, "id_ed25519", string(raw))
	o.answers = []string{"wrong", "open sesame"}
	inner := servers[2]
	host, port, _ := strings.Cut(inner.Addr(), ":")
	o.Write(t, "config", "Host inner\n HostName "+host+"\n Port "+port+"\n User "+inner.User+"\n ProxyJump "+servers[1].Dest()+"\n")
	var all sync.WaitGroup
	for _, dest := range []string{servers[0].Dest(), servers[1].Dest(), "inner"} {
		n := o.node(t, dest)
		all.Go(func() {
			if _, err := n.Probe(t.Context()); err != nil {
				t.Errorf("%s: %v", dest, err)
			}
		})
	}
	all.Wait()
	if len(o.asked) != 2 {
		t.Errorf("asked %q", o.asked)
	}
	// A file of the same name with another key is another key.
	raw, signer = sshtest.NewKey(t, "ed25519", "another")
	servers[0].Authorize(t, signer.PublicKey())
	o.Write(t, "id_ed25519", string(raw))
	o.answers = []string{"another"}
	if _, err := o.node(t, servers[0].Dest()).Probe(t.Context()); err != nil || len(o.asked) != 3 {
		t.Errorf("%v, asked %q", err, o.asked)
	}
}

// A node that is reached over a jump host with the same key asks once too, without
// a chain of the whole process.
func TestOnePassphraseForTheHops(t *testing.T) {
	t.Parallel()
	hop, end := sshtest.Start(t, sshtest.Options{}), sshtest.Start(t, sshtest.Options{})
	o := &operator{Laptop: sshtest.NewLaptop(t, hop, end), answers: []string{"open sesame"}}
	raw, signer := sshtest.NewKey(t, "ed25519", "open sesame")
	hop.Authorize(t, signer.PublicKey())
	end.Authorize(t, signer.PublicKey())
	o.Write(t, "id_ed25519", string(raw))
	host, port, _ := strings.Cut(end.Addr(), ":")
	o.Write(t, "config", "Host inner\n HostName "+host+"\n Port "+port+"\n User "+end.User+"\n ProxyJump "+hop.Dest()+"\n")
	o.probes(t, "inner")
	if len(o.asked) != 1 {
		t.Errorf("asked %q", o.asked)
	}
}
