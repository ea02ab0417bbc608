package main

import (
	"bufio"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"pipedeck/pipeline"
	"pipedeck/pipeline/spec"
	"pipedeck/remote/agent/wire"
	"pipedeck/remote/client"
	"pipedeck/remote/ssh"
)

// What a console asks the program on the node over SSH, before and beside the
// agent's socket.
const (
	farHash    = "hash"    // read a file
	farInstall = "install" // check an uploaded file and give it its name
	farUp      = "up"      // start the agent
	farEnd     = "end"     // end the agent
	farKept    = "kept"    // does a keeper live
	farUpgrade = "upgrade" // replace the agent by this program's
	farRemove  = "remove"  // remove the programs
	farCheck   = "check"   // look at the node
	farSync    = "sync"    // compare files that a console would push
	farPut     = "put"     // write them
)

// farRequest is what most of them need.
type farRequest struct {
	Spec     []byte `json:"spec"`
	Name     string `json:"name"`
	Node     string `json:"node"`
	StateDir string `json:"state_dir"`
	Simulate string `json:"simulate"`
	Force    bool   `json:"force"`
}

// farCommand is the node's end: one request on stdin, one marked line of answer.
func (a *app) farCommand() *cobra.Command {
	var mark string
	cmd := &cobra.Command{
		Use: "far OP", Short: "Answer a console over SSH", Args: cobra.ExactArgs(1), Hidden: true,
		RunE: func(cmd *cobra.Command, args []string) error {
			a.flag.here = true
			result, err := a.farAnswer(cmd.Context(), args[0])
			answer := struct {
				Result  any               `json:"result"`
				Problem *pipeline.Problem `json:"problem"`
			}{Result: result}
			if err != nil {
				answer.Problem = wire.AsProblem(err)
				if answer.Problem.Text == "" {
					answer.Problem.Text = err.Error()
				}
			}
			line, err := json.Marshal(answer)
			if err != nil {
				return err
			}
			// A shell may have printed something without a newline.
			_, err = fmt.Fprintf(a.out, "\n%s answer %s\n", mark, line)
			return err
		},
	}
	cmd.Flags().StringVar(&mark, "mark", "", "what the answer begins with")
	return cmd
}

func (a *app) farAnswer(ctx context.Context, op string) (any, error) {
	in := bufio.NewReader(a.in)
	line, err := readRequest(in)
	if err != nil {
		return nil, fmt.Errorf("cannot read the request: %w", err)
	}
	if op == farHash || op == farInstall {
		var req ssh.FileRequest
		if err := json.Unmarshal(line, &req); err != nil {
			return nil, fmt.Errorf("cannot read the request: %w", err)
		}
		return farFile(req, op == farInstall)
	}
	var full syncRequest
	if err := json.Unmarshal(line, &full); err != nil {
		return nil, fmt.Errorf("cannot read the request: %w", err)
	}
	req := full.farRequest
	s, err := a.farSpec(req)
	if err != nil {
		return nil, err
	}
	h := here{a: a, s: s}
	switch op {
	case farUp:
		return a.farUp(ctx, h)
	case farEnd:
		return h.end(ctx)
	case farKept:
		return h.back(ctx), nil
	case farUpgrade:
		return a.farUpgrade(ctx, h, req.Force)
	case farRemove:
		return farRemoval(ctx, h)
	case farSync:
		return farDiffer(h, full)
	case farPut:
		return farPutFiles(h, full, in)
	case farCheck:
		rep := &checkReport{Items: []checkItem{}}
		checkNode(ctx, rep, s)
		checkGPUs(ctx, rep, s)
		return rep.Items, nil
	}
	return nil, pipeline.Problemf(pipeline.ProblemUsage, "console and node have different versions: `pipedeck agent deploy`",
		"cannot answer %q: no such call", op)
}

// maxRequest bounds a request: a spec and a list of files.
const maxRequest = 16 << 20

// readRequest reads one line and nothing of what follows it.
func readRequest(in *bufio.Reader) ([]byte, error) {
	var line []byte
	for {
		part, err := in.ReadSlice('\n')
		line = append(line, part...)
		switch {
		case err == nil:
			return line, nil
		case !errors.Is(err, bufio.ErrBufferFull):
			return nil, err
		case len(line) > maxRequest:
			return nil, fmt.Errorf("more than %d bytes", maxRequest)
		}
	}
}

// farSpec is the console's spec, as this machine's.
func (a *app) farSpec(req farRequest) (specFile, error) {
	sp, err := spec.Parse(req.Name, req.Spec)
	if err != nil {
		return specFile{}, &pipeline.Problem{
			Kind: pipeline.ProblemUsage, Text: "cannot use the spec on the node:\n" + specErrors(err), Err: err,
			Hint: "console and node may have different versions: `pipedeck agent deploy`",
		}
	}
	n, err := pickNode(sp, req.Node)
	n.SSH = ""
	if req.Simulate != "" {
		a.flag.simulate = req.Simulate
	}
	return specFile{Spec: sp, node: n, far: true}, err
}

// farUp starts the agent with an environment fit for workers.
func (a *app) farUp(ctx context.Context, h here) (wire.Hello, error) {
	if err := loginEnv(); err != nil {
		return wire.Hello{}, err
	}
	c, err := h.ensure(ctx)
	if err != nil {
		return wire.Hello{}, err
	}
	defer c.Close()
	return c.Hello(ctx)
}

// defaultPath is searched last, and alone where a login gives none.
const defaultPath = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"

// loginEnv makes the environment of an SSH command fit for workers: without
// what belongs to the connection, and with the PATH of the container's image,
// which sshd does not hand on.
func loginEnv() error {
	for _, name := range []string{"SSH_CLIENT", "SSH_CONNECTION", "SSH_TTY", "SSH_AUTH_SOCK", "SSH_ORIGINAL_COMMAND"} {
		if err := os.Unsetenv(name); err != nil {
			return err
		}
	}
	image := ""
	if raw, err := os.ReadFile("/proc/1/environ"); err == nil {
		for pair := range strings.SplitSeq(string(raw), "\x00") {
			if value, ok := strings.CutPrefix(pair, "PATH="); ok {
				image = value
			}
		}
	}
	return os.Setenv("PATH", joinPaths(os.Getenv("PATH"), image, defaultPath))
}

// joinPaths keeps the first of each directory; a relative one is no place to
// look for programs of a worker.
func joinPaths(lists ...string) string {
	var dirs []string
	for _, list := range lists {
		for dir := range strings.SplitSeq(list, ":") {
			if filepath.IsAbs(dir) && !slices.Contains(dirs, dir) {
				dirs = append(dirs, dir)
			}
		}
	}
	return strings.Join(dirs, ":")
}

// farFile reads a file, and gives it its name if it is what it must be.
func farFile(req ssh.FileRequest, install bool) (ssh.FileReply, error) {
	f, err := os.OpenFile(req.Path, os.O_RDONLY, 0)
	if err != nil {
		return ssh.FileReply{}, err
	}
	defer func() { _ = f.Close() }()
	sum := sha256.New()
	if _, err := io.Copy(sum, f); err != nil {
		return ssh.FileReply{}, err
	}
	reply := ssh.FileReply{SHA256: hex.EncodeToString(sum.Sum(nil)), Version: version}
	if !install {
		return reply, nil
	}
	if reply.SHA256 != req.Want {
		return reply, pipeline.Problemf(pipeline.ProblemFailed, "try again; is the disk full?",
			"cannot install %q: it arrived as %s, sent was %s", filepath.Base(req.To), reply.SHA256, req.Want)
	}
	if filepath.Dir(req.Path) != filepath.Dir(req.To) {
		return reply, fmt.Errorf("cannot install %q: not in the same folder", req.To)
	}
	dir, err := os.Open(filepath.Dir(req.To))
	if err != nil {
		return reply, err
	}
	return reply, errors.Join(f.Sync(), os.Rename(req.Path, req.To), dir.Sync(), dir.Close())
}

// dialStdioCommand copies between its streams and the agent's socket.
func (a *app) dialStdioCommand() *cobra.Command {
	var stateHex, mark string
	cmd := &cobra.Command{
		Use: "dial-stdio", Short: "Connect stdin and stdout to the agent's socket", Args: cobra.NoArgs,
		Long: `Connect stdin and stdout to the socket of the agent on this machine. A console
whose node refuses to forward sockets reaches the agent through it.`,
		Example: "  pipedeck agent dial-stdio",
		RunE: func(cmd *cobra.Command, _ []string) error {
			state := wire.State{}
			if stateHex != "" {
				raw, err := hex.DecodeString(stateHex)
				if err != nil {
					return usageError(cmd, err)
				}
				state.Dir = string(raw)
			} else {
				a.flag.here = true
				s, err := a.loadSpec()
				if err != nil {
					return err
				}
				state.Dir = s.StateDir
			}
			return a.dialStdio(cmd.Context(), state, mark)
		},
	}
	f := cmd.Flags()
	f.StringVar(&stateHex, "state-hex", "", "the state directory in hex, instead of the spec's")
	f.StringVar(&mark, "mark", "", "announce the connection by a line that begins with this")
	f.Lookup("state-hex").Hidden, f.Lookup("mark").Hidden = true, true
	return cmd
}

func (a *app) dialStdio(ctx context.Context, state wire.State, mark string) error {
	// An agent that just died is back within a second.
	conn, err := (&net.Dialer{}).DialContext(ctx, "unix", state.Socket())
	word := ssh.StdioOpen
	if err != nil {
		word = ssh.StdioNone
	}
	if mark != "" {
		if _, err := fmt.Fprintf(a.out, "\n%s %s\n", mark, word); err != nil {
			return err
		}
	}
	if err != nil {
		return pipeline.Problemf(pipeline.ProblemUnreachable, "", "cannot reach the agent at %q: %w", state.Socket(), errors.Join(client.ErrNoAgent, err))
	}
	defer func() { _ = conn.Close() }()
	done := make(chan error, 2)
	go func() {
		_, err := io.Copy(conn, a.in)
		done <- err
	}()
	go func() {
		_, err := io.Copy(a.out, conn)
		done <- err
	}()
	select {
	case <-done: // either end is the end: HTTP does not half-close
	case <-ctx.Done():
	}
	return nil
}
