package main

import (
	"context"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"pipedeck/pipeline"
	"pipedeck/remote/agent/wire"
	"pipedeck/remote/client"
	"pipedeck/remote/ssh/sshtest"
)

// testBesideLogs measures how long control takes while a large log comes over
// the same client, in turn with how long it takes without, and says it. The
// agent's socket is asked in the same moments: what is slow there too is not
// the link.
func testBesideLogs(t *testing.T, bin string) {
	if !full() {
		t.Skip("a measurement: PIPEDECK_FULL=1")
	}
	t.Run("as fast as it goes", func(t *testing.T) { besideLogs(t, newFarDeck(t, bin, sshtest.Options{}), 200) })
	t.Run("over 16 Mbit a second", func(t *testing.T) {
		network := sshtest.NewNetwork(t)
		d := newFarDeck(t, bin, sshtest.Options{Network: network})
		d.must(t, "agent", "deploy")
		network.Limit(t, "16mbit")
		besideLogs(t, d, 40)
	})
}

func besideLogs(t *testing.T, d *farDeck, megabytes int64) {
	t.Helper()
	d.write(t, "pipedeck.yaml", strings.Replace(fmt.Sprintf(cutYAML, d.work, d.node.Dest(), d.puts.url, 4, 1),
		"mkdir -p out;", "mkdir -p out; head -c 20000000 /dev/urandom | od -An -tx1 | head -c 60000000;", 1))
	d.must(t, "start", "extract")
	d.await(t, "an uploaded file", func(n pipeline.NodeSnapshot) bool { return verified(n) == 4 }) // the logs are written
	a := &app{in: strings.NewReader(""), out: io.Discard, err: io.Discard, env: func(name string) string {
		return map[string]string{"HOME": d.laptop.Home}[name]
	}}
	a.flag.spec = filepath.Join(d.dir, "pipedeck.yaml")
	s, err := a.loadSpec()
	if err != nil {
		t.Fatal(err)
	}
	f, err := a.overSSH(s)
	if err != nil {
		t.Fatal(err)
	}
	defer a.closeNodes()
	c, err := f.dial(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	local, err := client.Dial(t.Context(), wire.State{Dir: filepath.Join(d.work, ".pipedeck")}.Socket())
	if err != nil {
		t.Fatal(err)
	}
	defer local.Close()
	took := map[string][]time.Duration{}
	var got atomic.Int64
	begin := time.Now()
	for round := 0; got.Load() < megabytes*1e6 && time.Since(begin) < 3*time.Minute; round++ {
		word := "alone"
		ctx, stop := context.WithCancel(t.Context())
		var readers sync.WaitGroup
		if round%2 == 1 {
			word = "beside logs"
			for rank := range 4 {
				readers.Go(func() { readLog(ctx, c, rank, &got) })
			}
		}
		for end := time.Now().Add(2 * time.Second); time.Now().Before(end); time.Sleep(10 * time.Millisecond) {
			for name, c := range map[string]*client.Client{"over SSH, " + word: c, "on the node, " + word: local} {
				began := time.Now()
				if _, err := c.Snapshot(ctx); err != nil {
					t.Error(err)
				}
				took[name] = append(took[name], time.Since(began))
			}
		}
		stop()
		readers.Wait()
	}
	load, _ := os.ReadFile("/proc/loadavg") // for the reader only
	t.Logf("%d MB of logs in %s, load %s", got.Load()/1e6, time.Since(begin).Round(time.Second), load)
	for _, name := range []string{"over SSH, alone", "over SSH, beside logs", "on the node, alone", "on the node, beside logs"} {
		all := took[name]
		slices.Sort(all)
		t.Logf("%-25s %4d snapshots: median %v, 99 %% within %v, slowest %v", name, len(all),
			all[len(all)/2].Round(10*time.Microsecond), all[len(all)*99/100].Round(10*time.Microsecond), all[len(all)-1].Round(10*time.Microsecond))
	}
}

// readLog reads a log from its begin again and again.
func readLog(ctx context.Context, c *client.Client, rank int, got *atomic.Int64) {
	cursor := pipeline.LogStart
	for ctx.Err() == nil {
		chunk, err := c.Log(ctx, pipeline.LogRequest{Worker: workerName("extract", rank), Cursor: cursor})
		if err != nil {
			return
		}
		got.Add(int64(len(chunk.Data)))
		cursor = chunk.Cursor
		if chunk.EOF {
			cursor = pipeline.LogStart
		}
	}
}
