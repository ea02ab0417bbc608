package deck

import (
	"testing"
	"testing/synctest"
	"time"

	"pipedeck/pipeline"
	"pipedeck/pipeline/spec"
)

func TestFailuresAreSortedByAge(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		d, end := newWorld(t, "count: 1", 0).agent(t)
		defer end()
		list, err := d.Failures(t.Context())
		if err != nil || len(list) != 2 || list[0].Path != "old" {
			t.Errorf("got %+v, %v", list, err)
		}
	})
}

func TestDescribe(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, "count: 2", 0)
		w.sp.Stages[0].Workers.Command = []string{"work", "{rank}", "--token=abc"}
		w.sp.Stages[0].Workers.Env = []spec.EnvVar{{Name: "HF_TOKEN", Value: "x"}, {Name: "WORLD", Value: "{world}"}}
		d, end := w.agent(t)
		defer end()
		if _, err := d.Describe(t.Context(), "extract/0"); err == nil {
			t.Error("a worker that was never started is described")
		}
		do(t, d, pipeline.VerbStart, "extract")
		got, err := d.Describe(t.Context(), "extract/1")
		if err != nil {
			t.Fatal(err)
		}
		if got.Rank != 1 || got.World != 2 || got.Launch == "" || got.PID == nil || got.StartedAt == nil || got.LastExit != nil {
			t.Errorf("got %+v", got)
		}
		if len(got.Command) != 3 || got.Command[1] != "1" || got.Command[2] != "--token=******" {
			t.Errorf("command %q", got.Command)
		}
		if len(got.Env) != 2 || !got.Env[0].Masked || got.Env[1].Value != "2" {
			t.Errorf("environment %+v", got.Env)
		}
		w.host.end(got.Launch, 3)
		time.Sleep(time.Second) // two looks
		after, err := d.Describe(t.Context(), "extract/1")
		if err != nil || after.LastExit == nil || *after.LastExit.Code != 3 {
			t.Errorf("after its end: %+v, %v", after, err)
		}
	})
}
