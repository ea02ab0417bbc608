package ssh

import (
	"bytes"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	xssh "golang.org/x/crypto/ssh"

	"pipedeck/pipeline"
)

// maxOutput bounds what one command may say; a node is not trusted to stop.
const maxOutput = 8 << 20

// result is how a command on the node ended.
type result struct {
	out, errs string
	// code is nil when no exit status came: what the command did is unknown.
	code *int
}

// run executes one command line through the login shell. It must be words that
// every shell takes as they are; see shellWord.
func (l *link) run(ctx context.Context, command string, stdin io.Reader) (result, error) {
	select {
	case l.exec <- struct{}{}:
		defer func() { <-l.exec }()
	case <-ctx.Done():
		return result{}, l.timeout(ctx)
	case <-l.dead:
		return result{}, l.err()
	}
	session, err := l.session(ctx)
	if err != nil {
		return result{}, err
	}
	defer func() { _ = session.Close() }()
	var out, errs capped
	session.Stdout, session.Stderr, session.Stdin = &out, &errs, stdin
	if err := session.Start(command); err != nil {
		return result{}, lost("", "cannot run a command on %q: %w", l.target.label(), err)
	}
	ended := make(chan error, 1)
	go func() { ended <- session.Wait() }()
	select {
	case err = <-ended:
	case <-ctx.Done():
		return result{}, l.timeout(ctx)
	case <-l.dead:
		return result{}, l.err()
	}
	r := result{out: out.String(), errs: errs.String()}
	if exit, ok := errors.AsType[*xssh.ExitError](err); ok {
		code := exit.ExitStatus()
		r.code = &code
		return r, nil
	}
	if err == nil {
		r.code = new(int)
	}
	return r, nil // without a status: unknown, whatever else was said
}

// session opens a session channel. A frozen peer makes the connection useless.
func (l *link) session(ctx context.Context) (*xssh.Session, error) {
	open, cancel := context.WithTimeout(ctx, openTimeout)
	defer cancel()
	session, err := within(open, l.client.NewSession)
	for begin := time.Now(); refused(err) && l.sessions.Load() > 0 && time.Since(begin) < closingTime; {
		// Where MaxSessions is 1 the last one may not be gone yet.
		pause(open, 20*time.Millisecond)
		session, err = within(open, l.client.NewSession)
	}
	switch {
	case err == nil:
		l.sessions.Add(1)
		return session, nil
	case !l.alive():
		return nil, l.err()
	case open.Err() != nil && ctx.Err() == nil:
		l.close(fmt.Errorf("the node did not open a session within %s", openTimeout))
		return nil, l.err()
	case open.Err() == nil && !refused(err):
		l.close(fmt.Errorf("the connection ended: %w", err)) // before its end is noticed elsewhere
		return nil, l.err()
	}
	return nil, lost("is MaxSessions 0, or does the provider's gateway offer no commands? Use the direct SSH port of the node",
		"cannot run commands on %q: %w", l.target.label(), err)
}

// closingTime is how long a server may take to see the end of a session.
const closingTime = 3 * time.Second

// refused tells a server's no from a connection that fails.
func refused(err error) bool {
	_, ok := errors.AsType[*xssh.OpenChannelError](err)
	return ok
}

// pause waits for d or the end of ctx.
func pause(ctx context.Context, d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
	case <-timer.C:
	}
}

func (l *link) timeout(ctx context.Context) error {
	return lost("", "no answer from %q: %w", l.target.label(), ctx.Err())
}

// capped keeps the first maxOutput bytes.
type capped struct{ bytes.Buffer }

// Write implements io.Writer.
func (c *capped) Write(p []byte) (int, error) {
	if room := maxOutput - c.Len(); room > 0 {
		_, _ = c.Buffer.Write(p[:min(len(p), room)]) // a buffer never fails
	}
	return len(p), nil
}

// nonce marks our lines among what banners and rc files print.
func nonce() string { return "PD" + rand.Text() }

// script runs a script with /bin/sh and returns the values of its lines
// `NONCE key value`. The script calls `say key value`, and must reach its end:
// without the last line nothing of it is believed.
func (l *link) script(ctx context.Context, text string) (map[string][]string, error) {
	mark := nonce()
	// What a user's shell or rc files did to PATH does not matter here.
	head := "PATH=${PATH:+$PATH:}/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin\nexport PATH\nLC_ALL=C; export LC_ALL\n" +
		"say() { printf '\\n%s %s %s\\n' '" + mark + "' \"$1\" \"$2\"; }\n"
	r, err := l.run(ctx, "exec /bin/sh -s", strings.NewReader(head+text+"\nsay end 1\n"))
	if err != nil {
		return nil, err
	}
	values := framed(r.out, mark)
	if values["end"] == nil {
		return nil, unframed(l, "the probe", r)
	}
	return values, nil
}

// framed picks the marked lines out of whatever was printed.
func framed(out, mark string) map[string][]string {
	values := map[string][]string{}
	for line := range strings.Lines(out) {
		rest, ok := strings.CutPrefix(strings.TrimRight(line, "\r\n"), mark+" ")
		if !ok {
			continue
		}
		key, value, _ := strings.Cut(rest, " ")
		values[key] = append(values[key], value)
	}
	return values
}

// unframed explains a command that did not get to its answer.
func unframed(l *link, what string, r result) error {
	said := strings.TrimSpace(r.errs)
	if said == "" {
		said = strings.TrimSpace(r.out)
	}
	if said == "" {
		said = "nothing"
	}
	if len(said) > 400 {
		said = said[len(said)-400:]
	}
	status := "without an exit status"
	if r.code != nil {
		status = fmt.Sprintf("with exit status %d", *r.code)
	}
	return pipeline.Problemf(pipeline.ProblemUnreachable, "does the login shell of the node allow commands?",
		"cannot use %q: %s ended %s and without an answer; it said: %s", l.target.label(), what, status, pipeline.Clean(said))
}

// shellWord quotes a word for any login shell: sh, bash, zsh, fish and csh read
// single quotes alike. ok is false for words that they would not.
func shellWord(s string) (quoted string, ok bool) {
	if strings.ContainsAny(s, "'\\!\n\r\x00") || s == "" {
		return "", false
	}
	return "'" + s + "'", true
}
