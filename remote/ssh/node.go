package ssh

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"path"
	"strconv"
	"strings"
	"sync"
	"time"

	"pipedeck/pipeline"
)

// Node is one machine over SSH: a connection that is made when it is needed and
// again after it was lost. It is safe for concurrent use.
type Node struct {
	stateDir string

	dialing chan struct{} // one connects at a time
	dialer  dialer

	mu      sync.Mutex
	link    *link
	bulk    *Node  // for what is large
	side    *Node  // for commands, where the first has no session left
	exe     string // the program on the node, once it is known
	prefer  string // the folder of the build that runs
	closed  bool
	failure error // of the last attempt to connect
	until   time.Time
}

// Origin says as whom and with which key the node was reached, for the journal
// there; "" before the first connection.
func (n *Node) Origin() string {
	key := n.dialer.used.Load()
	if key == nil {
		return ""
	}
	return fmt.Sprintf("ssh as %s with key %s", n.dialer.opts.Target.User, *key)
}

// failurePause is how long the next caller gets the last failure instead of an
// attempt of its own: several callers must not hammer a node.
const failurePause = 200 * time.Millisecond

// NewNode makes a Node of a deck whose state is in stateDir there; nothing is
// dialled yet.
func NewNode(opts Options, stateDir string) *Node {
	if opts.Say == nil {
		opts.Say = func(string, ...any) {}
	}
	if opts.Keys == nil {
		opts.Keys = &Keychain{}
	}
	return &Node{
		stateDir: stateDir, dialing: make(chan struct{}, 1),
		dialer: dialer{opts: opts, rings: map[string]*keyring{}},
	}
}

// Quiet makes later connections ask nobody anything: the console has the
// terminal by then.
func (n *Node) Quiet() {
	n.dialing <- struct{}{}
	defer func() { <-n.dialing }()
	n.dialer.opts.Prompt = nil
	for _, ring := range n.dialer.rings {
		for _, id := range ring.ids {
			if locked, ok := id.signer.(*lockedKey); ok {
				locked.quiet()
			}
		}
	}
}

// connected returns the living connection, or makes one.
func (n *Node) connected(ctx context.Context) (*link, error) {
	select {
	case n.dialing <- struct{}{}:
		defer func() { <-n.dialing }()
	case <-ctx.Done():
		return nil, lost("", "cannot connect to %q: %w", n.dialer.opts.Target.label(), ctx.Err())
	}
	n.mu.Lock()
	l, closed, failure, until := n.link, n.closed, n.failure, n.until
	n.mu.Unlock()
	switch {
	case closed:
		return nil, lost("", "the connection to %q was closed", n.dialer.opts.Target.label())
	case l != nil && l.alive():
		return l, nil
	case failure != nil && time.Now().Before(until):
		return nil, failure
	}
	l, err := n.dialer.open(ctx)
	n.mu.Lock()
	defer n.mu.Unlock()
	if err != nil {
		n.failure, n.until = err, time.Now().Add(failurePause)
		return nil, err
	}
	n.failure = nil
	n.link = l
	return l, nil
}

// Close ends the connections; what runs on the node goes on.
func (n *Node) Close() {
	n.mu.Lock()
	l, others := n.link, []*Node{n.bulk, n.side}
	n.closed = true
	n.mu.Unlock()
	for _, other := range others {
		if other != nil {
			other.Close()
		}
	}
	if l != nil {
		l.close(errors.New("closed here"))
	}
	if len(n.dialing) == 0 {
		for _, ring := range n.dialer.rings {
			ring.close()
		}
	}
}

// Dial opens a stream to the agent; its errors are those that a client makes
// sense of.
func (n *Node) Dial(ctx context.Context) (net.Conn, error) {
	l, err := n.connected(ctx)
	if err != nil {
		return nil, err
	}
	return l.socket(ctx, n.stateDir, plainSocket(n.stateDir), n.program)
}

// DialBulk is Dial over a connection apart, for what is large: it must not
// hold up what is small. Without a second connection it takes the first.
func (n *Node) DialBulk(ctx context.Context) (net.Conn, error) {
	n.mu.Lock()
	if n.bulk == nil {
		n.bulk = n.another()
	}
	bulk := n.bulk
	n.mu.Unlock()
	conn, err := bulk.Dial(ctx)
	if err != nil {
		return n.Dial(ctx)
	}
	return conn, nil
}

// Via says how the agent is reached, for the operator.
func (n *Node) Via() string {
	n.mu.Lock()
	l := n.link
	n.mu.Unlock()
	via := "ssh " + n.dialer.opts.Target.label()
	if len(n.dialer.opts.Target.Jumps) > 0 {
		via += fmt.Sprintf(" over %d jump hosts", len(n.dialer.opts.Target.Jumps))
	}
	if l != nil && l.throughStdio() {
		via += ", through dial-stdio (forwarding refused)"
	}
	return via
}

// plainSocket is where the agent listens, "" where only the node can tell: a
// long path has a short one named after it.
func plainSocket(stateDir string) string {
	if plain := path.Join(stateDir, "agent.sock"); len(plain) <= 100 {
		return plain
	}
	return ""
}

// program finds an installed program on the node, "" if there is none.
func (n *Node) program(ctx context.Context) (string, error) {
	n.mu.Lock()
	exe := n.exe
	n.mu.Unlock()
	if exe != "" {
		return exe, nil
	}
	p, err := n.Probe(ctx)
	if err != nil {
		return "", err
	}
	n.mu.Lock()
	prefer := n.prefer
	n.mu.Unlock()
	for _, b := range p.Bases {
		if !b.Usable {
			continue
		}
		for _, have := range b.Installed {
			exe = have
			if path.Base(path.Dir(have)) == prefer {
				break
			}
		}
		if exe != "" {
			n.use(exe)
			return exe, nil
		}
	}
	return "", nil
}

// Prefer names the build that runs, so that calls are made with the same.
func (n *Node) Prefer(version, sha256 string) {
	if len(sha256) < hashLetters {
		return
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	n.prefer = version + "-" + sha256[:hashLetters]
}

// commands is a connection that has a session left: where one is all that the
// node allows, the agent's stream has that of the first.
func (n *Node) commands(ctx context.Context) (*link, error) {
	l, err := n.connected(ctx)
	if err != nil || !l.throughStdio() {
		return l, err
	}
	n.mu.Lock()
	if n.side == nil {
		n.side = n.another()
	}
	side := n.side
	n.mu.Unlock()
	return side.connected(ctx)
}

// another is a Node for the same place with a connection of its own. Node.mu is
// held.
func (n *Node) another() *Node {
	opts := n.dialer.opts
	opts.Prompt = nil
	other := NewNode(opts, n.stateDir)
	other.exe, other.prefer, other.dialer.rings = n.exe, n.prefer, n.dialer.rings
	return other
}

// use makes exe the program that the node's commands are run with.
func (n *Node) use(exe string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.exe = exe
	if n.bulk != nil {
		n.bulk.use(exe)
	}
}

// Probe asks the node what it is and what is installed there.
func (n *Node) Probe(ctx context.Context) (Probe, error) {
	l, err := n.connected(ctx)
	if err != nil {
		return Probe{}, err
	}
	return l.probe(ctx, n.stateDir, n.dialer.opts.Workdir)
}

// answer is what the program says on the node: a result, or a Problem.
type answer struct {
	Result  json.RawMessage   `json:"result"`
	Problem *pipeline.Problem `json:"problem"`
}

// Call runs `agent far OP` of the program on the node: a request in, a result
// or a Problem out. A call whose answer does not come has an unknown effect.
func (n *Node) Call(ctx context.Context, op string, request, out any) error {
	return n.CallWith(ctx, op, request, strings.NewReader(""), out)
}

// CallWith is Call with bytes that follow the request.
func (n *Node) CallWith(ctx context.Context, op string, request any, body io.Reader, out any) error {
	exe, err := n.program(ctx)
	if err != nil {
		return err
	}
	if exe == "" {
		return noAgent(&n.dialer.opts.Target)
	}
	return n.callOf(ctx, exe, op, request, body, out)
}

func (n *Node) callOf(ctx context.Context, exe, op string, request any, follows io.Reader, out any) error {
	l, err := n.commands(ctx)
	if err != nil {
		return err
	}
	word, ok := shellWord(exe)
	if !ok {
		return fmt.Errorf("cannot run %q through a shell", exe)
	}
	body, err := json.Marshal(request)
	if err != nil {
		return fmt.Errorf("cannot encode the request: %w", err)
	}
	mark := nonce()
	r, err := l.run(ctx, fmt.Sprintf("exec %s agent far --mark %s %s", word, mark, op),
		io.MultiReader(strings.NewReader(string(body)+"\n"), follows))
	if err != nil {
		return err
	}
	text := first(framed(r.out, mark)["answer"])
	var a answer
	if text == "" || json.Unmarshal([]byte(text), &a) != nil {
		return unframed(l, "`"+path.Base(exe)+" agent far "+op+"`", r)
	}
	if a.Problem != nil {
		return a.Problem
	}
	if out == nil {
		return nil
	}
	return json.Unmarshal(a.Result, out)
}

// Run executes a program that is on the node anyway, and returns what it said on
// both streams and its exit code. An answer that does not come whole is an error.
func (n *Node) Run(ctx context.Context, words ...string) (out string, code int, err error) {
	l, err := n.connected(ctx)
	if err != nil {
		return "", 0, err
	}
	quoted := make([]string, len(words))
	for i, w := range words {
		quoted[i] = quoteShell(w)
	}
	values, err := l.script(ctx, fmt.Sprintf("{ %s; printf '\\nrc %%s\\n' \"$?\"; } 2>&1 </dev/null | while IFS= read -r line; do say line \"$line\"; done",
		strings.Join(quoted, " ")))
	if err != nil {
		return "", 0, err
	}
	lines := values["line"]
	if len(lines) == 0 || !strings.HasPrefix(lines[len(lines)-1], "rc ") {
		return "", 0, fmt.Errorf("%q on %q: no exit code came", words[0], n.dialer.opts.Target.label())
	}
	code, err = strconv.Atoi(strings.TrimPrefix(lines[len(lines)-1], "rc "))
	return strings.Join(lines[:len(lines)-1], "\n"), code, err
}
