package tui

import (
	"context"
	"fmt"
	"io"
	"strings"
	"time"

	"pipedeck/pipeline"
)

// summaryEvery is how often the plain console says how all is.
const summaryEvery = time.Minute

// Plain writes what changes as lines of text, one a change, and a summary once
// a minute, until ctx ends: for screen readers and logs. It controls no screen
// and reads no key. It fails only if out cannot be written to.
func Plain(ctx context.Context, nodes []Node, out io.Writer, now func() time.Time) error {
	logs := make([]*plainLog, len(nodes))
	for i, n := range nodes {
		logs[i] = newPlainLog(out)
		if len(nodes) > 1 {
			logs[i].node = clean(n.Name) + ": "
		}
	}
	changed := changes(ctx, nodes, func(f func()) { f() })
	tick := time.NewTicker(pollMost)
	defer tick.Stop()
	for {
		in := lookAt(nodes, now())
		for i, p := range logs {
			p.look(newBoard(in, now(), nodes[i].Name))
			if p.err != nil {
				return p.err
			}
		}
		select {
		case <-ctx.Done():
			return nil
		case <-changed():
		case <-tick.C:
		}
	}
}

func newPlainLog(out io.Writer) *plainLog {
	return &plainLog{out: out, seen: map[string]string{}, events: &eventRing{}}
}

// plainLog remembers what it has said.
type plainLog struct {
	out     io.Writer
	node    string            // begins each line, where there are several
	seen    map[string]string // by subject: the last words
	events  *eventRing
	said    int64 // sequence number of the newest event that was said
	begun   bool
	summary time.Time
	err     error
}

func (p *plainLog) say(b board, format string, args ...any) {
	if p.err == nil {
		_, p.err = fmt.Fprintln(p.out, b.now.UTC().Format(time.TimeOnly)+"Z "+p.node+clean(fmt.Sprintf(format, args...)))
	}
}

// change says something about a subject when it differs from the last time.
func (p *plainLog) change(b board, subject, text string) {
	if p.seen[subject] != text {
		p.seen[subject] = text
		p.say(b, "%s: %s", subject, text)
	}
}

// look says what has changed since the last look.
func (p *plainLog) look(b board) {
	p.change(b, "link", strings.TrimSuffix(string(b.link.State)+", "+deref(b.link.Reason), ", "))
	if !b.have || b.stale {
		return
	}
	word, tally, _ := worst(b)
	health := strings.Join(b.snap.HealthReasons, "; ")
	p.change(b, deckName(b)+" @ "+b.node.Name, strings.TrimSuffix(word+", "+health, ", "))
	for _, s := range b.node.Stages {
		p.change(b, "stage "+s.Name, strings.TrimSuffix(string(s.State)+", "+deref(s.StateReason), ", "))
	}
	for _, r := range b.all {
		p.change(b, r.key, rowWords(r))
	}
	for _, o := range b.usedOutputs() {
		p.change(b, "output "+o.name, string(o.State))
	}
	if a := b.node.Action; a != nil {
		p.change(b, "action "+a.ID, fmt.Sprintf("%s %s by %s: %s", a.Verb, a.Target, a.By, actionStep(*a)))
	}
	p.newEvents(b)
	if b.now.Sub(p.summary) >= summaryEvery {
		p.summary = b.now
		for _, s := range progress(b) {
			p.say(b, "summary: %s", strings.Join(strings.Fields(linesText([]line{s.line(b, 99)})), " "))
		}
		p.say(b, "summary: %s; %s", tally, strings.Join(strings.Fields(linesText([]line{storeOneLine(b, b.totals(), 99)})), " "))
	}
}

// rowWords is a row's state in words that change only with the state: reasons
// count seconds.
func rowWords(r row) string {
	if r.weight == calm || r.reason == "" {
		return r.word
	}
	return r.word + ", " + strings.TrimRight(strings.SplitN(r.reason, ";", 2)[0], " ")
}

// newEvents says the events that came since the last look; of those before
// the first look, none.
func (p *plainLog) newEvents(b board) {
	if b.node.Agent != nil && p.events.instance != "" && p.events.instance != b.node.Agent.Instance {
		p.said = 0
	}
	p.events.add(b.node)
	for _, e := range b.node.Events {
		if e.Seq <= p.said {
			continue
		}
		p.said = e.Seq
		if p.begun && e.Level != pipeline.Info || p.begun && e.Action != "" {
			p.say(b, "%s %s: %s", e.Level, e.Source, eventText(e))
		}
	}
	p.begun = true
}
