package s3test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// Gateway is a running versitygw: a real S3 server over a folder.
type Gateway struct {
	Endpoint  string
	AccessKey string
	SecretKey string
	Bucket    string
	Dir       string // the bucket's folder: each object is the file of its key
	access    string // file with one line per request
}

// VersitygwPath returns the binary, or why there is none.
func VersitygwPath() (string, error) {
	path := os.Getenv("VERSITYGW")
	if path == "" {
		home, err := os.UserHomeDir()
		if err != nil {
			return "", fmt.Errorf("cannot find versitygw: %w", err)
		}
		path = filepath.Join(home, ".cache", "pipedeck", "bin", "versitygw")
	}
	if _, err := os.Stat(path); err != nil {
		return "", fmt.Errorf("cannot find versitygw: %w (set VERSITYGW, or: go install github.com/versity/versitygw/cmd/versitygw@v1.8.0)", err)
	}
	return path, nil
}

// Versitygw runs versitygw for the length of a test, over a temporary folder.
// Without the binary the test is skipped, with the reason.
func Versitygw(t TB) *Gateway {
	t.Helper()
	bin, err := VersitygwPath()
	if err != nil {
		t.Skipf("%v", err)
	}
	g, stop, err := startGateway(bin, t.TempDir())
	if err != nil {
		t.Fatalf("%v", err)
	}
	t.Cleanup(stop)
	return g
}

// startGateway tries again when another program takes the port in between.
func startGateway(bin, dir string) (*Gateway, func(), error) {
	var last error
	for range 3 {
		g, stop, err := tryGateway(bin, dir)
		if err == nil {
			return g, stop, nil
		}
		last = err
	}
	return nil, nil, last
}

func tryGateway(bin, dir string) (*Gateway, func(), error) {
	g := &Gateway{
		AccessKey: "pipedeck", SecretKey: "pipedeck-secret", Bucket: "bucket",
		Dir: filepath.Join(dir, "root", "bucket"), access: filepath.Join(dir, "access.log"),
	}
	side := filepath.Join(dir, "sidecar")
	for _, d := range []string{g.Dir, side} {
		if err := os.MkdirAll(d, 0o755); err != nil {
			return nil, nil, fmt.Errorf("cannot start versitygw: %w", err)
		}
	}
	out, err := os.Create(g.access)
	if err != nil {
		return nil, nil, fmt.Errorf("cannot start versitygw: %w", err)
	}
	defer func() { _ = out.Close() }() // the child keeps its own descriptor
	addr, err := freeAddress()
	if err != nil {
		return nil, nil, err
	}
	g.Endpoint = "http://" + addr
	// Without --keep-alive each answer closes its connection.
	args := []string{
		"--port", addr, "--access", g.AccessKey, "--secret", g.SecretKey, "--keep-alive", "--health", "/health", "posix",
	}
	if !hasXattrs(g.Dir) {
		args = append(args, "--sidecar", side) // slower: a folder and files for each object
	}
	cmd := exec.CommandContext(context.Background(), bin, append(args, filepath.Dir(g.Dir))...)
	cmd.Stdout, cmd.Stderr = out, out
	if err := cmd.Start(); err != nil {
		return nil, nil, fmt.Errorf("cannot start versitygw: %w", err)
	}
	ended := make(chan struct{})
	go func() { _ = cmd.Wait(); close(ended) }()
	stop := func() { _ = cmd.Process.Kill(); <-ended }
	if err := g.ready(ended); err != nil {
		stop()
		said, _ := os.ReadFile(g.access)
		return nil, nil, fmt.Errorf("cannot start versitygw: %w: %s", err, said)
	}
	return g, stop, nil
}

// hasXattrs reports whether a folder's filesystem keeps user attributes, which
// tmpfs of older kernels and some overlays do not.
func hasXattrs(dir string) bool {
	const name = "user.pipedeck"
	if unix.Setxattr(dir, name, []byte("1"), 0) != nil {
		return false
	}
	return unix.Removexattr(dir, name) == nil
}

func freeAddress() (string, error) {
	l, err := new(net.ListenConfig).Listen(context.Background(), "tcp", "127.0.0.1:0")
	if err != nil {
		return "", fmt.Errorf("cannot find a free port: %w", err)
	}
	addr := l.Addr().String()
	return addr, l.Close()
}

// ready waits until the gateway answers.
func (g *Gateway) ready(ended <-chan struct{}) error {
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	defer cancel()
	for {
		req, err := http.NewRequestWithContext(ctx, http.MethodGet, g.Endpoint+"/health", nil)
		if err != nil {
			return err
		}
		if resp, err := http.DefaultClient.Do(req); err == nil {
			_ = resp.Body.Close()
			if resp.StatusCode == http.StatusOK {
				return nil
			}
		}
		select {
		case <-ended:
			return errors.New("it ended")
		case <-ctx.Done():
			return errors.New("it does not answer")
		case <-time.After(20 * time.Millisecond):
		}
	}
}

// Requests counts the requests served so far by HTTP method, from the
// gateway's own log ("… | status | time | address | METHOD | path | …").
func (g *Gateway) Requests() (map[string]int, error) {
	f, err := os.Open(g.access)
	if err != nil {
		return nil, fmt.Errorf("cannot count requests: %w", err)
	}
	defer func() { _ = f.Close() }()
	n := map[string]int{}
	for lines := bufio.NewScanner(f); lines.Scan(); {
		fields := strings.Split(lines.Text(), " | ")
		if len(fields) >= 7 && fields[1] == "vgw" && fields[6] != "/health" {
			n[strings.TrimSpace(fields[5])]++
		}
	}
	return n, nil
}
