package ssh_test

import (
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"pipedeck/remote/ssh"
)

// resolve reads a configuration of its own.
func resolve(t *testing.T, dest, config string, more map[string]string) (ssh.Target, error) {
	t.Helper()
	home := t.TempDir()
	more = mapWith(more, ".ssh/config", config)
	for name, text := range more {
		file := filepath.Join(home, name)
		if err := os.MkdirAll(filepath.Dir(file), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(file, []byte(strings.ReplaceAll(text, "HOME", home)), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	got, err := ssh.Resolve(dest, ssh.Place{
		Home: home, LocalUser: "me", System: "/nonexistent",
		Env: func(name string) string { return map[string]string{"SSH_AUTH_SOCK": "/agent", "WHERE": "/keys"}[name] },
	})
	for i, id := range got.Identities {
		got.Identities[i] = strings.ReplaceAll(id, home, "~")
	}
	return got, err
}

func mapWith(m map[string]string, key, value string) map[string]string {
	out := map[string]string{key: value}
	maps.Copy(out, m)
	return out
}

func TestResolve(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		name, dest, config string
		files              map[string]string
		want               string // user@addr
		check              func(t *testing.T, got ssh.Target)
	}{
		{name: "user, host and port", dest: "root@1.2.3.4:2222", want: "root@1.2.3.4:2222"},
		{name: "bare", dest: "node", want: "me@node:22"},
		{name: "IPv6", dest: "root@[::1]:2222", want: "root@[::1]:2222"},
		{name: "bare IPv6", dest: "root@fe80::1", want: "root@[fe80::1]:22"},
		{name: "alias", dest: "gpu1", config: "Host gpu*\n  HostName %h.example.com\n  User ubuntu\n  Port 2200\n", want: "ubuntu@gpu1.example.com:2200"},
		{name: "the destination wins", dest: "root@gpu1:23", config: "Host gpu1\n User ubuntu\n Port 2200\n", want: "root@gpu1:23"},
		{name: "the first value wins", dest: "gpu1", config: "Host gpu1\n Port 1\nHost *\n Port 2\n User you\n", want: "you@gpu1:1"},
		{name: "negated", dest: "gpu1", config: "Host gpu* !gpu1\n Port 1\n", want: "me@gpu1:22"},
		{name: "equals, quotes, comments", dest: "a", config: "Host=a\n# no\n  Port = 24\n  HostName \"b\" # yes\n", want: "me@b:24"},
		{name: "case", dest: "a", config: "hOST A\n pORT 9\n", want: "me@a:9"},
		{
			name: "match", dest: "a", config: "Host a\n HostName b\nMatch host b user me\n Port 7\nMatch originalhost b\n Port 8\n User x\nMatch all\n User y\n",
			want: "y@b:7",
		},
		{
			name: "match that is not known", dest: "a", config: "Match exec \"true\"\n Port 7\nMatch final all\n Port 8\nHost a\n User z\n", want: "z@a:22",
			check: func(t *testing.T, got ssh.Target) {
				t.Helper()
				notes := strings.Join(got.Notes, "\n")
				if !strings.Contains(notes, "Match exec is not supported") || !strings.Contains(notes, "Match final is not supported") {
					t.Error(notes)
				}
			},
		},
		{
			name: "include inside a host", dest: "a", config: "Host b\n Include more\nHost a\n Include more\n User u\n", want: "u@c:5",
			files: map[string]string{".ssh/more": "Port 5\nHost a\n HostName c\nHost b\n HostName d\n"},
		},
		{name: "include of globs", dest: "a", config: "Include conf.d/*\n", want: "me@x:22", files: map[string]string{".ssh/conf.d/1": "Host a\n HostName x\n"}},
		{
			name: "unsupported is said", dest: "a", config: "Host a\n KnownHostsCommand x\n BindAddress 1.2.3.4\n Compression yes\n", want: "me@a:22",
			check: func(t *testing.T, got ssh.Target) {
				t.Helper()
				if len(got.Notes) != 2 || !strings.Contains(got.Notes[0], "config:2: KnownHostsCommand is not supported") {
					t.Errorf("%q", got.Notes)
				}
			},
		},
		{
			name: "identities and tokens", dest: "root@a:9", want: "root@a:9",
			config: "IdentityFile ~/k/%h_%p_%r\nIdentityFile %d/two\nIdentityFile ${WHERE}/three\nIdentityFile %x\nIdentitiesOnly yes\nIdentityAgent none\n",
			check: func(t *testing.T, got ssh.Target) {
				t.Helper()
				want := []string{"~/k/a_9_root", "~/two", "/keys/three"}
				if !slices.Equal(got.Identities, want) || !got.IdentitiesOnly || got.Agent != "" || len(got.Notes) != 1 {
					t.Errorf("%+v", got)
				}
			},
		},
		{
			name: "jumps", dest: "in", want: "me@in:22",
			config: "Host in\n ProxyJump one,two@2.2.2.2:22\nHost one\n HostName 1.1.1.1\n User first\n ProxyJump zero\nHost zero\n Port 99\n",
			check: func(t *testing.T, got ssh.Target) {
				t.Helper()
				var hops []string
				for _, j := range got.Jumps {
					hops = append(hops, j.User+"@"+j.Addr())
				}
				if strings.Join(hops, " ") != "me@zero:99 first@1.1.1.1:22 two@2.2.2.2:22" {
					t.Errorf("%q", hops)
				}
			},
		},
		{
			name: "host key alias", dest: "a:9", config: "HostKeyAlias rented\n", want: "me@a:9",
			check: func(t *testing.T, got ssh.Target) {
				t.Helper()
				if got.KeyName != "rented:22" || got.Agent != "/agent" {
					t.Errorf("%+v", got)
				}
			},
		},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			got, err := resolve(t, tc.dest, tc.config, tc.files)
			if err != nil {
				t.Fatal(err)
			}
			if place := got.User + "@" + got.Addr(); place != tc.want {
				t.Errorf("%s, want %s", place, tc.want)
			}
			if tc.check != nil {
				tc.check(t, got)
			} else if len(got.Notes) > 0 {
				t.Errorf("%q", got.Notes)
			}
		})
	}
}

func TestResolveRefuses(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct{ dest, config, want string }{
		{"a", "ProxyCommand nc %h %p\n", "ProxyCommand"},
		{"a", "ProxyJump a\n", "more than"},
		{"a", "Port 99999\n", "no port"},
		{"-oProxyCommand=x", "", "no SSH destination"},
		{"root@", "", "no SSH destination"},
	} {
		if _, err := resolve(t, tc.dest, tc.config, nil); err == nil || !strings.Contains(err.Error(), tc.want) {
			t.Errorf("%q with %q: %v", tc.dest, tc.config, err)
		}
	}
}
