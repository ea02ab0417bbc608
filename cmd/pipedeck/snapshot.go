package main

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"pipedeck/pipeline"
	"pipedeck/pipeline/spec"
	"pipedeck/remote/client"
)

func (a *app) snapshotCommand() *cobra.Command {
	var watch string
	cmd := &cobra.Command{
		Use:   "snapshot",
		Short: "Print one snapshot of the deck",
		Example: `  pipedeck snapshot --json
  pipedeck snapshot --json --watch 2s | jq .health`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return a.snapshot(cmd.Context(), watch) },
	}
	cmd.Flags().StringVar(&watch, "watch", "", "one object a line, this often (such as 2s)")
	return cmd
}

// snapshot prints one snapshot, or one at each interval. The exit code is the
// health of the last one.
func (a *app) snapshot(ctx context.Context, watch string) error {
	var interval time.Duration
	if watch != "" {
		var err error
		interval, err = spec.ParseDuration(watch)
		if err != nil || interval <= 0 {
			return pipeline.Problemf(pipeline.ProblemUsage, "for example --watch 2s", "cannot watch every %q: no interval", watch)
		}
	}
	if d, err := a.bare(ctx); d != nil || err != nil {
		switch {
		case err != nil:
			return err
		case interval > 0:
			return a.watch(ctx, d, interval)
		}
		s, err := d.Snapshot(ctx)
		if err != nil {
			return err
		}
		return a.printSnapshot(s)
	}
	return a.withDeck(ctx, func(sf specFile, c *client.Client) error {
		if interval > 0 {
			return a.watch(ctx, c, interval)
		}
		s, err := c.Snapshot(ctx)
		if client.Died(err) { // another is on its way
			if c, err = a.connect(ctx, sf); err != nil {
				return err
			}
			defer c.Close()
			s, err = c.Snapshot(ctx)
		}
		if err != nil {
			return err
		}
		return a.printSnapshot(s)
	})
}

// watch prints until it is interrupted; an agent that does not answer is
// itself a snapshot: stale, with the values of the last one.
func (a *app) watch(ctx context.Context, c pipeline.Deck, interval time.Duration) error {
	clock := wallClock{}
	w := client.NewWatcher(func(context.Context) (pipeline.Deck, error) { return c, nil }, interval, clock)
	go w.Run(ctx)
	late := time.NewTimer(interval)
	defer late.Stop()
	var last error
	var printed time.Time
	for {
		select {
		case <-ctx.Done():
			return last
		case <-w.Changed():
		case <-late.C:
		}
		// A change of the link between two polls waits for the next line.
		if clock.Now().Sub(printed) < interval*3/4 {
			continue
		}
		if s, _, ok, _ := w.Current(); ok {
			last = a.printSnapshot(s)
			printed = clock.Now()
		}
		late.Reset(interval * 5 / 4)
	}
}

func (a *app) printSnapshot(s pipeline.Snapshot) error {
	var err error
	if a.flag.json {
		err = a.printJSON(s)
	} else {
		for line := range strings.Lines(snapshotText(s)) {
			_, err = fmt.Fprintln(a.out, pipeline.Clean(strings.TrimRight(line, " \n")))
		}
	}
	if err != nil {
		return err
	}
	if code := s.ExitCode(); code != exitOK {
		return exitError(code)
	}
	return nil
}

// wallClock is the time of this machine.
type wallClock struct{}

// Now implements pipeline.Clock.
func (wallClock) Now() time.Time { return time.Now() }
