package mover_test

import (
	"bytes"
	"cmp"
	"context"
	"encoding/binary"
	"encoding/json"
	"flag"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/credentials"

	"pipedeck/pipeline"
	"pipedeck/pipeline/spec"
	"pipedeck/s3/ledger"
	"pipedeck/s3/mover"
	"pipedeck/s3/s3test"
	"pipedeck/s3/store"
)

// TestMain lets more tests run side by side than there are cores: nearly all
// they do is wait for a mover.
func TestMain(m *testing.M) {
	flag.Parse()
	asked := false
	flag.Visit(func(f *flag.Flag) { asked = asked || f.Name == "test.parallel" })
	if !asked {
		_ = flag.Set("test.parallel", "8") // a number, and the flag is there
	}
	os.Exit(m.Run())
}

// world is a deck on a temporary disk with a server that knows the truth.
type world struct {
	t      testing.TB
	dir    string
	url    string
	access string
	secret string
	spec   *spec.Spec
	server *s3test.Server
	mu     sync.Mutex
	wrote  map[string][][]byte // every whole content that a path had, oldest first
	runOf  map[string]string   // paths of another run than r1
	hook   func(string)
	hurry  int
	user   *syscall.Credential // of a spawned mover; nil: this process's
	// patience of await; 0 is five minutes.
	patience time.Duration
	// object is what the store really holds; nil: server's word.
	object func(key string) ([]byte, bool)
	clock  func() time.Time
	boot   func() (string, time.Duration)
	stages string
	dial   func(ctx context.Context, network, addr string) (net.Conn, error)
	creds  aws.CredentialsProvider
	m      *mover.Mover
	ledger *ledger.Ledger
	stop   func()
}

const oneOutput = `
stages:
  extract:
    workers: {count: 1, command: [sleep]}
    outputs:
      hs:
        dir: out
        match: "**/*.safetensors"
        format: safetensors
        id: 'hs_(\d+)\.safetensors'
        key: "hs/{path}"
    done_set: {file: done.txt, form: lines}
`

// newWorld parses stages (the text of the spec from there on) for a new deck.
func newWorld(tb testing.TB, o s3test.Options, stages string) *world {
	tb.Helper()
	server := s3test.Start(tb, o)
	w := worldAt(tb, tb.TempDir(), server.URL(), server.Bucket(), stages)
	w.server = server
	return w
}

// worldAt is a deck in dir whose server is somebody else's.
func worldAt(tb testing.TB, dir, url, bucket, stages string) *world {
	tb.Helper()
	w := &world{t: tb, dir: dir, url: url, access: "right", secret: "secret", stages: stages, wrote: map[string][][]byte{}}
	text := fmt.Sprintf(`
version: 1
deck: test
run: r1
workdir: %s
store: {bucket: %s, endpoint: %q, region: us-east-1, path_style: true, prefix: pre, max_parallel: 20, max_memory: 64MB}
%s`, dir, bucket, url, stages)
	s, err := spec.Parse("pipedeck.yaml", []byte(text))
	if err != nil {
		tb.Fatal(err)
	}
	w.spec = s
	return w
}

func (w *world) client() *store.Client {
	creds := w.creds
	if creds == nil {
		creds = credentials.NewStaticCredentialsProvider(w.access, w.secret, "")
	}
	return store.New(store.Options{
		Bucket: w.spec.Store.Bucket, Endpoint: w.url, PathStyle: true,
		Credentials: creds, Dial: w.dial,
		ScratchPrefix: w.spec.RunPrefix() + ".pipedeck/probe/",
	})
}

// start runs a mover until the test ends or end is called.
func (w *world) start(active ...string) {
	w.t.Helper()
	l, err := ledger.Open(context.Background(), filepath.Join(w.spec.StateDir, "ledger.db"), ledger.Binding{
		Endpoint: w.spec.Store.Endpoint, Bucket: w.spec.Store.Bucket, Prefix: w.spec.Store.Prefix, Run: w.spec.Run, Deck: w.spec.Deck,
	})
	if err != nil {
		w.t.Fatal(err)
	}
	m, err := mover.New(mover.Options{
		Spec: w.spec, Store: w.client(), Verifier: w.client(), Ledger: l,
		StateDir: w.spec.StateDir, Hook: w.hook, Hurry: w.hurry, Clock: w.clock, Boot: w.boot,
	})
	if err != nil {
		w.t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- m.Run(ctx) }()
	w.m, w.ledger = m, l
	w.stop = sync.OnceFunc(func() {
		cancel()
		if err := <-ended; err != nil {
			w.t.Error("Run:", err)
		}
		if err := l.Close(); err != nil {
			w.t.Error("Close:", err)
		}
	})
	w.t.Cleanup(w.stop)
	for _, stage := range active {
		if err := m.Activate(context.Background(), stage); err != nil {
			w.t.Fatal(err)
		}
	}
}

// forget deletes the ledger, as after the loss of a node.
func (w *world) forget() {
	w.t.Helper()
	for _, suffix := range []string{"", "-wal", "-shm"} {
		if err := os.Remove(filepath.Join(w.spec.StateDir, "ledger.db"+suffix)); err != nil && !os.IsNotExist(err) {
			w.t.Fatal(err)
		}
	}
}

func (w *world) path(rel string) string { return filepath.Join(w.dir, rel) }

// write creates a whole file at once.
func (w *world) write(rel string, data []byte) {
	w.t.Helper()
	if err := os.MkdirAll(filepath.Dir(w.path(rel)), 0o755); err != nil {
		w.t.Fatal(err)
	}
	tmp := w.path(rel) + ".tmp"
	if err := os.WriteFile(tmp, data, 0o644); err != nil {
		w.t.Fatal(err)
	}
	if err := os.Rename(tmp, w.path(rel)); err != nil {
		w.t.Fatal(err)
	}
	w.record(rel, data)
}

func (w *world) record(rel string, data []byte) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.wrote[rel] = append(w.wrote[rel], data)
}

func (w *world) exists(rel string) bool {
	_, err := os.Lstat(w.path(rel))
	return err == nil
}

func (w *world) key(rel string) string {
	run := w.runOf[rel]
	if run == "" {
		run = "r1"
	}
	return "pre/" + run + "/hs/" + strings.TrimPrefix(rel, "out/")
}

// safe is the one invariant: a file may be gone only if the server holds its
// bytes.
func (w *world) safe() {
	w.t.Helper()
	w.mu.Lock()
	defer w.mu.Unlock()
	for rel, contents := range w.wrote {
		last := contents[len(contents)-1]
		info, err := os.Lstat(w.path(rel))
		if err == nil && (info.Size() > 0 || len(last) == 0) {
			continue
		}
		if err != nil && !os.IsNotExist(err) {
			w.t.Fatal(err)
		}
		if w.lyingAside(rel) {
			continue
		}
		if stored, ok := w.held(w.key(rel)); !ok || !bytes.Equal(stored, last) {
			w.t.Fatalf("LOST: %s is gone and the store holds %d of %d bytes (there: %v)", rel, len(stored), len(last), ok)
		}
	}
}

func (w *world) held(key string) ([]byte, bool) {
	if w.object != nil {
		return w.object(key)
	}
	return w.server.Object(key)
}

// unrecord forgets a path that the test itself took away.
func (w *world) unrecord(rel string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	delete(w.wrote, rel)
}

func (w *world) lyingAside(rel string) bool {
	found := false
	state := w.spec.StateDir
	for _, dir := range []string{state + "/aside", state + "/trash", state + "/quarantine", w.path("out/.pipedeck-aside")} {
		_ = filepath.WalkDir(dir, func(path string, _ fs.DirEntry, err error) error {
			found = found || err == nil && strings.HasSuffix(path, "/"+strings.TrimPrefix(rel, "out/"))
			return nil
		})
	}
	return found
}

// await polls until ok, checking the invariant all the while.
func (w *world) await(what string, ok func() bool) {
	w.t.Helper()
	asked, _ := time.ParseDuration(os.Getenv("PIPEDECK_PATIENCE")) // of scripts/mutate; "" is 0
	deadline := time.Now().Add(cmp.Or(asked, w.patience, 5*time.Minute))
	for !ok() {
		w.safe()
		if time.Now().After(deadline) {
			r := w.m.Outputs()
			data, _ := json.MarshalIndent(r, "", " ")
			w.t.Fatalf("gave up waiting until %s:\n%s\nfailures: %+v", what, data, w.m.Failures())
		}
		time.Sleep(5 * time.Millisecond)
	}
	w.safe()
}

func (w *world) reading() pipeline.OutputReading { return w.m.Outputs().Outputs[0] }

func is(p *int64, want int64) bool { return p != nil && *p == want }

// moved says whether n files are verified and none is local.
func (w *world) moved(n int64) func() bool {
	return func() bool {
		r := w.reading()
		return is(r.VerifiedFiles, n) && is(r.DeletedLocalFiles, n) && is(r.LocalFiles, 0)
	}
}

// tensors is a valid safetensors file with n bytes of data.
func tensors(seed uint64, n int) []byte {
	header := fmt.Sprintf(`{"x":{"dtype":"U8","shape":[%d],"data_offsets":[0,%d]}}`, n, n)
	b := binary.LittleEndian.AppendUint64(nil, uint64(len(header)))
	b = append(b, header...)
	r := rand.NewChaCha8([32]byte{byte(seed), byte(seed >> 8), byte(seed >> 16), byte(seed >> 24)})
	data := make([]byte, n)
	_, _ = r.Read(data)
	if n > 0 {
		data[n-1] = 1
	}
	return append(b, data...)
}

func sample(i int) string { return fmt.Sprintf("out/hs_%06d.safetensors", i) }

func (w *world) writeSamples(from, to, size int) {
	w.t.Helper()
	for i := from; i < to; i++ {
		w.write(sample(i), tensors(uint64(i), size))
	}
}
