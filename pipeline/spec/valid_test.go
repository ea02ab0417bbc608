package spec

import (
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"
)

func TestDflashLoadsAsWritten(t *testing.T) {
	t.Parallel()
	s := load(t, "dflash.yaml")
	ex := s.Stage("extract")
	o := &ex.Outputs[0]
	check(t, "deck", s.Deck, "dflash-qwen36-27b")
	check(t, "state dir", s.StateDir, "/workspace/dflash/.pipedeck")
	check(t, "node", s.Nodes[0], Node{Name: "train1", SSH: "root@203.0.113.7:40022", GPUs: GPUSet{All: true}})
	check(t, "max memory", s.Store.MaxMemory, 512_000_000)
	check(t, "total", ex.Total, 914_000)
	check(t, "gpu memory", ex.Workers.GPUMemory, 52_000_000_000)
	check(t, "stop", ex.Workers.Stop, Stop{Signal: "SIGTERM", Grace: 2 * time.Minute})
	check(t, "env", ex.Workers.Env[1], EnvVar{"PYTORCH_CUDA_ALLOC_CONF", "expandable_segments:True"})
	check(t, "id", o.ID, `hs_(\d+)\.safetensors`)
	check(t, "every of safetensors", o.Every, 0)
	check(t, "progress", ex.Progress, Progress{JSON: "data/progress_{rank}.json", Done: "processed", Skipped: "skipped"})
	check(t, "done set", *ex.DoneSet, DoneSet{File: "data/done.txt", Form: DoneLines})
	check(t, "gate", *ex.Gates[0].LossMask, LossMaskGate{"data/tokenized", "loss_mask", 16, 0.05, 0.5})
	check(t, "service port", s.Stage("generate").Services[0].Port, 30000)
	check(t, "every of jsonl", s.Stage("generate").Outputs[0].Every, 30*time.Minute)
	train := s.Stage("train")
	check(t, "gpus", train.Workers.GPUs.All, true)
	check(t, "checkpoints", train.Outputs[0].KeepLast, 2)
	if len(s.Hash) != 64 || len(s.Source) == 0 {
		t.Errorf("hash %q of %d bytes", s.Hash, len(s.Source))
	}
	names := make([]string, 0, len(s.Stages))
	for _, st := range s.Stages {
		names = append(names, st.Name)
	}
	check(t, "order", strings.Join(names, " "), "tokenize extract generate train")
}

func TestDefaults(t *testing.T) {
	t.Parallel()
	s := load(t, "minimal.yaml")
	st := &s.Stages[0]
	o := &st.Outputs[0]
	check(t, "nodes", s.Nodes[0], Node{Name: "local", GPUs: GPUSet{All: true}})
	check(t, "store", s.Store, Store{
		Bucket: "minimal-bucket", Credentials: CredentialsForward, MaxParallel: 100, MaxMemory: 512e6,
	})
	check(t, "launcher", st.Launcher, LauncherLocal)
	check(t, "stop", st.Workers.Stop, Stop{"SIGTERM", 30 * time.Second})
	check(t, "restart", st.Workers.Restart, Restart{3, 10 * time.Second})
	check(t, "loading timeout", st.Workers.LoadingTimeout, 20*time.Minute)
	check(t, "stall after", st.Workers.StallAfter, time.Minute)
	check(t, "format", o.Format, FormatSafetensors)
	check(t, "key", o.Key, "states/{path}")
	check(t, "after upload", o.AfterUpload, AfterDelete)
	check(t, "settle", o.Settle, 10*time.Second)
	check(t, "keep last", o.KeepLast, 0)
}

func TestAllKeysArrive(t *testing.T) {
	t.Parallel()
	s := load(t, "all-keys.yaml")
	st := s.Stage("extract")
	check(t, "prefix", s.Store.Prefix, "teams/nlp")
	check(t, "path style", s.Store.PathStyle, false)
	check(t, "bandwidth", s.Store.Bandwidth, 100_000_000)
	check(t, "max memory", s.Store.MaxMemory, 1<<30)
	check(t, "gpu memory", st.Workers.GPUMemory, 5_905_580_032)
	check(t, "env", st.Workers.Env[1], EnvVar{"OMP_NUM_THREADS", "4"})
	check(t, "restart", st.Workers.Restart, Restart{0, 5 * time.Second})
	check(t, "pause", st.Pause.Signal, "SIGSTOP")
	check(t, "router restart", st.Services[1].Restart, Restart{3, 10 * time.Second})
	check(t, "serve gpus", s.Stage("serve").Workers.GPUs.Indexes[1], 1)
	check(t, "every", s.Stage("train").Outputs[0].Every, 15*time.Minute)
}

func check[T any](t *testing.T, what string, got, want T) {
	t.Helper()
	if !reflect.DeepEqual(got, want) {
		t.Errorf("%s: got %v, want %v", what, got, want)
	}
}

func TestInferFormat(t *testing.T) {
	t.Parallel()
	for match, want := range map[string]string{
		"*.safetensors": FormatSafetensors, "**/x-*.pt": FormatZip, "*.{pt,ckpt}": FormatZip, "*.{pt,jsonl}": "",
		"*": "", "step_*": "", "a.parquet": FormatParquet, "*.arrow": FormatArrow, "part-*.jsonl": FormatJSONL, "*.pt*": "",
	} {
		if got := inferFormat(match); got != want {
			t.Errorf("%q: got %q, want %q", match, got, want)
		}
	}
}

func TestKeysFeedSuggestions(t *testing.T) {
	t.Parallel()
	paths := make([]string, 0, 100)
	for _, k := range Keys() {
		paths = append(paths, k.Path)
	}
	if !slices.Contains(paths, "stages.NAME.workers.stop.grace") || !slices.Contains(paths, "nodes[].gpus") {
		t.Errorf("keys are %q", paths)
	}
	sorted := slices.Clone(paths)
	slices.Sort(sorted)
	if len(slices.Compact(sorted)) != len(paths) {
		t.Error("a key is listed twice")
	}
}
