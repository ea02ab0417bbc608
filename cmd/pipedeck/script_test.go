package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/rogpeppe/go-internal/testscript"
	"github.com/santhosh-tekuri/jsonschema/v6"

	"pipedeck/pipeline"
	"pipedeck/remote/agent/wire"
	"pipedeck/remote/client"
	"pipedeck/s3/s3test"
)

// The keys of the scripts' store. No file, environment of a worker or process
// argument may hold the secret.
const (
	scriptKey    = "AKIASCRIPTSCRIPT"
	scriptSecret = "canary-secret-of-the-scripts"
)

// TestScript runs testdata/script: each is a deck of its own with a store of
// its own. Commands beside those of testscript:
//
//	exits N CMD...        run a command that must end with code N
//	await REGEXP CMD...   run a command until its stdout matches
//	valid SCHEMA          stdout validates against a JSON schema (snapshot, plan, coverage)
//	field NAME KEY        put a top-level field of the JSON on stdout into an environment variable
//	kill9 agent|WORKER    SIGKILL, and remember who it was
//	changed agent|WORKER  another process than at the last kill9 or note (! changed: the same)
//	note agent|WORKER     remember who it is
//	secrets               look for the secret in state, environments, arguments
//	object KEY            the store has the object (! object: it has not)
func TestScript(t *testing.T) {
	testscript.Run(t, testscript.Params{
		Dir:                "../../testdata/script",
		Setup:              setupScript,
		RequireUniqueNames: true,
		Cmds: map[string]func(ts *testscript.TestScript, neg bool, args []string){
			"exits": cmdExits, "await": cmdAwait, "valid": cmdValid, "field": cmdField, "kill9": cmdKill9,
			"changed": cmdChanged, "note": cmdNote, "secrets": cmdSecrets, "object": cmdObject,
		},
	})
}

// setupScript starts the store and fills its address into the script's specs.
func setupScript(env *testscript.Env) error {
	server := s3test.New(s3test.Options{Keys: []string{scriptKey}})
	if err := server.Listen(); err != nil {
		return err
	}
	env.Defer(server.Close)
	env.Values["server"] = server
	env.Values["noted"] = map[string]int{}
	for name, value := range map[string]string{
		"HOME": env.WorkDir, "S3_URL": server.URL(), "USER": "tester",
		"AWS_ACCESS_KEY_ID": scriptKey, "AWS_SECRET_ACCESS_KEY": scriptSecret, "AWS_SESSION_TOKEN": "",
	} {
		env.Setenv(name, value)
	}
	specs, err := filepath.Glob(filepath.Join(env.WorkDir, "*.yaml"))
	if err != nil {
		return err
	}
	for _, path := range specs {
		raw, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		filled := strings.NewReplacer("$S3_URL", server.URL(), "$WORK", env.WorkDir).Replace(string(raw))
		if err := os.WriteFile(path, []byte(filled), 0o644); err != nil {
			return err
		}
	}
	env.Defer(func() {
		if err := cleanBelow(env.WorkDir, "WORK="+env.WorkDir); err != nil {
			env.T().Fatal(err)
		}
	})
	return nil
}

func usage(ts *testscript.TestScript, ok bool, how string) {
	if !ok {
		ts.Fatalf("usage: %s", how)
	}
}

func cmdExits(ts *testscript.TestScript, neg bool, args []string) {
	usage(ts, !neg && len(args) >= 2, "exits N command...")
	want, err := strconv.Atoi(args[0])
	ts.Check(err)
	if got := exitOf(ts, args[1:]); got != want {
		ts.Fatalf("%q exits with %d, not %d\n%s%s", args[1:], got, want, ts.ReadFile("stdout"), ts.ReadFile("stderr"))
	}
}

func exitOf(ts *testscript.TestScript, args []string) int {
	err := ts.Exec(args[0], args[1:]...)
	var ended *exec.ExitError
	if err == nil {
		return 0
	}
	if !errors.As(err, &ended) {
		ts.Fatalf("cannot run %q: %v", args, err)
	}
	return ended.ExitCode()
}

func cmdAwait(ts *testscript.TestScript, neg bool, args []string) {
	usage(ts, !neg && len(args) >= 2, "await REGEXP command...")
	re, err := regexp.Compile("(?m)" + args[0])
	ts.Check(err)
	for until := time.Now().Add(patience); ; time.Sleep(50 * time.Millisecond) {
		_ = ts.Exec(args[1], args[2:]...) // its output decides
		if re.MatchString(ts.ReadFile("stdout")) {
			return
		}
		if time.Now().After(until) {
			ts.Fatalf("%q did not come to print %q:\n%s%s", args[1:], args[0], ts.ReadFile("stdout"), ts.ReadFile("stderr"))
		}
	}
}

func cmdValid(ts *testscript.TestScript, neg bool, args []string) {
	usage(ts, !neg && len(args) == 1, "valid snapshot|plan|coverage")
	schema, ok := map[string][]byte{
		"snapshot": pipeline.SnapshotSchema, "plan": pipeline.PlanSchema, "coverage": pipeline.CoverageSchema,
	}[args[0]]
	usage(ts, ok, "valid snapshot|plan|coverage")
	ts.Check(validate(schema, []byte(ts.ReadFile("stdout"))))
}

// validate checks one JSON object against a schema.
func validate(schema, raw []byte) error {
	doc, err := jsonschema.UnmarshalJSON(bytes.NewReader(schema))
	if err != nil {
		return err
	}
	c := jsonschema.NewCompiler()
	if err := c.AddResource("schema.json", doc); err != nil {
		return err
	}
	sch, err := c.Compile("schema.json")
	if err != nil {
		return err
	}
	value, err := jsonschema.UnmarshalJSON(bytes.NewReader(raw))
	if err != nil {
		return err
	}
	return sch.Validate(value)
}

func cmdField(ts *testscript.TestScript, neg bool, args []string) {
	usage(ts, !neg && len(args) == 2, "field NAME KEY")
	var doc map[string]any
	ts.Check(json.Unmarshal([]byte(ts.ReadFile("stdout")), &doc))
	ts.Setenv(args[0], fmt.Sprint(doc[args[1]]))
}

// pidOf finds the agent or a worker.
func pidOf(ts *testscript.TestScript, who string) int {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	c, err := client.Dial(ctx, wire.State{Dir: ts.MkAbs(".pipedeck")}.Socket())
	ts.Check(err)
	defer c.Close()
	if who == "agent" {
		h, err := c.Hello(ctx)
		ts.Check(err)
		return h.PID
	}
	snap, err := c.Snapshot(ctx)
	ts.Check(err)
	for _, st := range snap.Nodes[0].Stages {
		for _, w := range st.Workers {
			if w.ID == who && w.PID != nil {
				return *w.PID
			}
		}
	}
	ts.Fatalf("%s has no process", who)
	return 0
}

func noted(ts *testscript.TestScript) map[string]int {
	m, ok := ts.Value("noted").(map[string]int)
	if !ok {
		ts.Fatalf("nothing can be noted")
	}
	return m
}

func cmdKill9(ts *testscript.TestScript, neg bool, args []string) {
	usage(ts, !neg && len(args) == 1, "kill9 agent|WORKER")
	cmdNote(ts, false, args)
	ts.Check(syscall.Kill(noted(ts)[args[0]], syscall.SIGKILL))
}

func cmdNote(ts *testscript.TestScript, neg bool, args []string) {
	usage(ts, !neg && len(args) == 1, "note agent|WORKER")
	noted(ts)[args[0]] = pidOf(ts, args[0])
}

func cmdChanged(ts *testscript.TestScript, neg bool, args []string) {
	usage(ts, len(args) == 1, "[!] changed agent|WORKER")
	was, now := noted(ts)[args[0]], pidOf(ts, args[0])
	if was == 0 {
		ts.Fatalf("nothing was noted of %s", args[0])
	}
	if (was == now) != neg {
		ts.Fatalf("%s: was process %d, is %d", args[0], was, now)
	}
}

// cmdSecrets looks wherever a secret could stay: files of the deck, and what
// the kernel tells of its processes. Agent and keeper may hold it in memory
// and got it in their environment; workers and shims may not.
func cmdSecrets(ts *testscript.TestScript, neg bool, args []string) {
	usage(ts, !neg && len(args) == 0, "secrets")
	files := 0
	err := filepath.WalkDir(ts.MkAbs("."), func(path string, e os.DirEntry, err error) error {
		if err != nil || !e.Type().IsRegular() {
			return nil //nolint:nilerr // a file that moved away meanwhile
		}
		raw, err := os.ReadFile(path)
		if err == nil {
			files++
		}
		if bytes.Contains(raw, []byte(scriptSecret)) {
			return fmt.Errorf("%s holds the secret", path)
		}
		return nil
	})
	ts.Check(err)
	lives := 0
	for _, l := range recordedLaunches(ts.MkAbs(".pipedeck")) {
		for _, p := range []process{l.Worker, l.Shim} {
			if p.alive() {
				lives++
				checkProcess(ts, p.PID, "environ", "cmdline")
			}
		}
	}
	checkProcess(ts, pidOf(ts, "agent"), "cmdline")
	if files == 0 || lives == 0 {
		ts.Fatalf("nothing was looked at: %d files, %d processes of workers", files, lives)
	}
}

func checkProcess(ts *testscript.TestScript, pid int, what ...string) {
	for _, name := range what {
		raw, err := os.ReadFile(fmt.Sprintf("/proc/%d/%s", pid, name))
		ts.Check(err)
		for _, secret := range []string{scriptSecret, scriptKey} {
			if bytes.Contains(raw, []byte(secret)) {
				ts.Fatalf("%s of process %d holds %q", name, pid, secret)
			}
		}
	}
}

func cmdObject(ts *testscript.TestScript, neg bool, args []string) {
	usage(ts, len(args) == 1, "[!] object KEY")
	server, ok := ts.Value("server").(*s3test.Server)
	if !ok {
		ts.Fatalf("there is no store")
	}
	if _, has := server.Object(args[0]); has == neg {
		ts.Fatalf("object %q: present %v; there are %q", args[0], has, server.Keys())
	}
}
