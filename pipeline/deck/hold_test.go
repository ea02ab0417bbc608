package deck

import (
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"pipedeck/pipeline"
)

// A lease that is held for an action on several nodes keeps others out, lets its
// own plan in, and ends by itself.
func TestAHeldLeaseIsForItsPlanAlone(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, "count: 2", 0)
		w.host.onSig = func(l *pipeline.LaunchSeen, _ string, _ pipeline.Scope) { w.host.exit(l, 0) }
		d, end := w.agent(t)
		defer end()
		do(t, d, pipeline.VerbStart, "extract")
		plan := func() pipeline.ApplyRequest {
			p := wipePlan(t, d, pipeline.Intent{Verb: pipeline.VerbRestart, Target: "extract"})
			return pipeline.ApplyRequest{Plan: p.ID, Confirm: "d", By: "ann@laptop"}
		}
		refused := func(what string, err error) {
			t.Helper()
			if p, ok := errors.AsType[*pipeline.Problem](err); !ok || p.Kind != pipeline.ProblemRefused || !strings.Contains(p.Text, "ann@laptop") {
				t.Errorf("%s: %v", what, err)
			}
		}
		mine, other := plan(), plan()
		wrong := mine
		wrong.Confirm = "yes"
		if err := d.Hold(t.Context(), wrong); err == nil {
			t.Error("held with another text than the plan asks for")
		}
		if err := d.Hold(t.Context(), mine); err != nil {
			t.Fatal(err)
		}
		refused("a second hold", d.Hold(t.Context(), other))
		_, err := d.Apply(t.Context(), other)
		refused("another plan", err)
		if err := d.Hold(t.Context(), mine); err != nil {
			t.Errorf("the holder asks again: %v", err)
		}
		if p, err := d.Planned(t.Context(), mine.Plan); err != nil || p.ID != mine.Plan {
			t.Errorf("%+v %v", p, err)
		}
		if err := d.Release(t.Context(), mine.Plan); err != nil {
			t.Error(err)
		}
		if err := d.Hold(t.Context(), other); err != nil {
			t.Errorf("after a release: %v", err)
		}
		if err := d.Release(t.Context(), mine.Plan); err != nil { // frees its own only
			t.Error(err)
		}
		refused("a hold beside another's", d.Hold(t.Context(), mine))
		time.Sleep(2 * holdLife)
		if a := applied(t, d, pipeline.Plan{ID: mine.Plan}, "d"); a.Result != pipeline.Verified {
			t.Errorf("after a hold that nobody used: %s", a.Result)
		}
		again := plan()
		if err := d.Hold(t.Context(), again); err != nil {
			t.Fatal(err)
		}
		if a := applied(t, d, pipeline.Plan{ID: again.Plan}, "d"); a.Result != pipeline.Verified {
			t.Errorf("the held plan itself: %s", a.Result)
		}
		if _, err := d.Planned(t.Context(), again.Plan); err == nil {
			t.Error("a plan that was applied is there to be applied")
		}
	})
}
