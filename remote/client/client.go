package client

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"io"
	"math"
	"net"
	"net/http"
	"net/url"
	"strconv"
	"time"

	"pipedeck/pipeline"
	"pipedeck/remote/agent/wire"
)

const (
	// quick bounds calls that the agent answers from memory.
	quick = 15 * time.Second
	// slack is what a long poll may take beyond the wait it asks for.
	slack = 10 * time.Second
	// slow bounds plans, which may have to ask the store.
	slow = 5 * time.Minute
	// maxAnswer is the largest answer that is read, in bytes.
	maxAnswer = 256 << 20
)

// insistAfter are the pauses before a call over a tunnel is made again: a link
// that was cut is back within seconds, or not soon.
var insistAfter = []time.Duration{200 * time.Millisecond, time.Second, 3 * time.Second}

// bulkWindow is how much of what is large may be on its way at once. More would
// fill the queue in front of a slow link, where packets of control are lost and
// sent again 200 ms later; less would be slow over a long one.
const bulkWindow = 64 << 10

// Client is a pipeline.Deck that asks an agent. It is safe for concurrent use.
// Its errors are *pipeline.Problem; errors.Is tells ErrNoAgent, ErrVersion and
// ErrDenied.
type Client struct {
	where string
	proto wire.Proto
	http  *http.Client
	bulk  *http.Client // for what is large
	via   func() string
	first wire.Hello // from when it was dialled
	// offset is how far the node's clock is before this one's, at the first hello.
	offset time.Duration
}

var (
	_ pipeline.Deck   = (*Client)(nil)
	_ pipeline.Holder = (*Client)(nil)
)

// Dialer opens one connection to an agent: a unix socket here, or a channel of
// an SSH connection.
type Dialer func(ctx context.Context) (net.Conn, error)

// Dial connects to the agent at a unix socket and checks that both speak a
// common protocol version.
func Dial(ctx context.Context, socketPath string) (*Client, error) {
	return DialFunc(ctx, socketPath, unixDialer(socketPath))
}

func unixDialer(socketPath string) Dialer {
	return func(ctx context.Context) (net.Conn, error) {
		conn, err := new(net.Dialer).DialContext(ctx, "unix", socketPath)
		if err != nil {
			return nil, err
		}
		if err := checkOwner(conn); err != nil {
			_ = conn.Close()
			return nil, err
		}
		return conn, nil
	}
}

// DialFunc is Dial over connections of dial's making; where names the agent in
// errors.
func DialFunc(ctx context.Context, where string, dial Dialer) (*Client, error) {
	return newClient(where, wire.Current(), dial).greet(ctx)
}

// Tunnel is how an agent on another machine is reached.
type Tunnel struct {
	Where string // names the agent in errors
	// Dial opens a stream that all requests share, as HTTP/2.
	Dial Dialer
	// Bulk opens one that what is large goes through, to hold up nothing else.
	Bulk Dialer
	// Via says how the agent is reached now, for the snapshot.
	Via func() string
}

// DialTunnel is Dial to another machine.
func DialTunnel(ctx context.Context, t Tunnel) (*Client, error) {
	c := newClient(t.Where, wire.Current(), t.Dial)
	c.http = shared(t.Dial)
	c.bulk = shared(t.Bulk)
	if transport, ok := c.bulk.Transport.(*http.Transport); ok {
		transport.HTTP2 = &http.HTTP2Config{MaxReceiveBufferPerConnection: bulkWindow, MaxReceiveBufferPerStream: bulkWindow}
	}
	c.via = t.Via
	return c.greet(ctx)
}

// shared sends all requests over one stream.
func shared(dial Dialer) *http.Client {
	transport := transportOver(dial)
	transport.Protocols = new(http.Protocols)
	transport.Protocols.SetUnencryptedHTTP2(true)
	return &http.Client{Transport: transport}
}

// greet checks the protocol and the node's clock.
func (c *Client) greet(ctx context.Context) (*Client, error) {
	asked := time.Now()
	hello, err := c.Hello(ctx)
	if err != nil {
		c.Close()
		return nil, err
	}
	c.first = hello
	if !hello.Now.IsZero() {
		c.offset = hello.Now.Sub(asked.Add(time.Since(asked) / 2))
	}
	return c, nil
}

// First is the agent's answer when it was dialled.
func (c *Client) First() wire.Hello { return c.first }

func newClient(where string, proto wire.Proto, dial Dialer) *Client {
	h := &http.Client{Transport: transportOver(dial)}
	return &Client{where: where, proto: proto, http: h, bulk: h}
}

func transportOver(dial Dialer) *http.Transport {
	return &http.Transport{
		DialContext:        func(ctx context.Context, _, _ string) (net.Conn, error) { return dial(ctx) },
		MaxConnsPerHost:    6, // channels of one SSH connection are not free
		MaxIdleConns:       6,
		IdleConnTimeout:    time.Minute,
		DisableCompression: true,
	}
}

// Close gives the idle connections back. The agent goes on.
func (c *Client) Close() {
	c.http.CloseIdleConnections()
	c.bulk.CloseIdleConnections()
}

// Hello asks who the agent is. A protocol without a common version is a
// Problem that wraps ErrVersion.
func (c *Client) Hello(ctx context.Context) (wire.Hello, error) {
	var hello wire.Hello
	if err := c.get(ctx, quick, wire.PathHello, nil, &hello); err != nil {
		return hello, err
	}
	if !hello.Proto.Overlaps(c.proto) {
		return hello, versionProblem(c.where, hello, c.proto)
	}
	return hello, nil
}

// Snapshot implements pipeline.Deck.
func (c *Client) Snapshot(ctx context.Context) (pipeline.Snapshot, error) {
	var snap pipeline.Snapshot
	err := c.get(ctx, quick, wire.PathSnapshot, nil, &snap)
	if c.via == nil {
		return snap, err
	}
	for i := range snap.Nodes {
		via, offset := c.via(), math.Round(c.offset.Seconds()*10)/10
		snap.Nodes[i].Link.Via, snap.Nodes[i].Link.ClockOffsetSeconds = &via, &offset
	}
	return snap, err
}

// Forward hands credentials to the agent's memory.
func (c *Client) Forward(ctx context.Context, creds wire.Credentials) error {
	return c.post(ctx, quick, wire.PathCredentials, rand.Text(), creds, &struct{}{})
}

// Plan implements pipeline.Deck.
func (c *Client) Plan(ctx context.Context, in pipeline.Intent) (pipeline.Plan, error) {
	var plan pipeline.Plan
	err := c.post(ctx, slow, wire.PathPlan, "", in, &plan)
	return plan, err
}

// Apply implements pipeline.Deck. Without req.Key a random one is used.
func (c *Client) Apply(ctx context.Context, req pipeline.ApplyRequest) (pipeline.Action, error) {
	if req.Key == "" {
		req.Key = rand.Text()
	}
	var action pipeline.Action
	err := c.post(ctx, slow, wire.PathApply, req.Key, req, &action)
	return action, err
}

// Action implements pipeline.Deck.
func (c *Client) Action(ctx context.Context, id string, wait time.Duration) (pipeline.Action, error) {
	var action pipeline.Action
	query := url.Values{"wait": {wait.String()}}
	err := c.get(ctx, wait+slack, wire.PathActions+url.PathEscape(id), query, &action)
	return action, err
}

// Coverage implements pipeline.Deck. An audit takes what it takes: only ctx
// bounds it.
func (c *Client) Coverage(ctx context.Context, outputs []string, ids bool) (pipeline.CoverageReport, error) {
	var report pipeline.CoverageReport
	query := url.Values{"output": outputs, "ids": {strconv.FormatBool(ids)}}
	err := c.get(ctx, 0, wire.PathCoverage, query, &report)
	return report, err
}

// History implements pipeline.Deck.
func (c *Client) History(ctx context.Context, limit int) ([]pipeline.JournalRecord, error) {
	var records []pipeline.JournalRecord
	err := c.get(ctx, slow, wire.PathHistory, url.Values{"limit": {strconv.Itoa(limit)}}, &records)
	return records, err
}

// Events implements pipeline.Deck.
func (c *Client) Events(ctx context.Context, after int64, wait time.Duration) ([]pipeline.Event, error) {
	var events []pipeline.Event
	query := url.Values{"after": {strconv.FormatInt(after, 10)}, "wait": {wait.String()}}
	err := c.get(ctx, wait+slack, wire.PathEvents, query, &events)
	return events, err
}

// Log implements pipeline.Deck.
func (c *Client) Log(ctx context.Context, req pipeline.LogRequest) (pipeline.LogChunk, error) {
	var chunk pipeline.LogChunk
	query := url.Values{
		"worker": {req.Worker}, "cursor": {req.Cursor}, "before": {req.Before}, "wait": {req.Wait.String()},
		"tail": {strconv.Itoa(req.Tail)}, "limit": {strconv.Itoa(req.Limit)},
		"lines": {strconv.FormatBool(req.Lines)},
	}
	err := c.roundTrip(ctx, c.bulk, req.Wait+slack, http.MethodGet, wire.PathLog+"?"+query.Encode(), "", nil, &chunk)
	return chunk, err
}

// Retry implements pipeline.Deck.
func (c *Client) Retry(ctx context.Context) error {
	return c.post(ctx, quick, wire.PathRetry, rand.Text(), struct{}{}, &struct{}{})
}

// Failures implements pipeline.Deck.
func (c *Client) Failures(ctx context.Context) ([]pipeline.Failure, error) {
	var list []pipeline.Failure
	err := c.get(ctx, quick, wire.PathFailures, nil, &list)
	return list, err
}

// Describe implements pipeline.Deck.
func (c *Client) Describe(ctx context.Context, worker string) (pipeline.WorkerDetail, error) {
	var detail pipeline.WorkerDetail
	err := c.get(ctx, quick, wire.PathWorker, url.Values{"worker": {worker}}, &detail)
	return detail, err
}

// PlanFiles implements pipeline.Deck.
func (c *Client) PlanFiles(ctx context.Context, plan string, offset, limit int) (pipeline.PlanFiles, error) {
	var page pipeline.PlanFiles
	query := url.Values{"offset": {strconv.Itoa(offset)}, "limit": {strconv.Itoa(limit)}}
	err := c.get(ctx, quick, wire.PathPlanned+url.PathEscape(plan)+"/files", query, &page)
	return page, err
}

// Planned implements pipeline.Holder.
func (c *Client) Planned(ctx context.Context, plan string) (pipeline.Plan, error) {
	var p pipeline.Plan
	err := c.get(ctx, quick, wire.PathPlanned+url.PathEscape(plan), nil, &p)
	return p, err
}

// Hold implements pipeline.Holder.
func (c *Client) Hold(ctx context.Context, req pipeline.ApplyRequest) error {
	return c.post(ctx, slow, wire.PathHold, rand.Text(), req, &struct{}{})
}

// Release implements pipeline.Holder.
func (c *Client) Release(ctx context.Context, plan string) error {
	return c.post(ctx, quick, wire.PathRelease, rand.Text(), pipeline.ApplyRequest{Plan: plan}, &struct{}{})
}

// Strangers implements pipeline.Deck.
func (c *Client) Strangers(ctx context.Context, pids []int) ([]pipeline.Stranger, error) {
	var list []pipeline.Stranger
	query := url.Values{}
	for _, pid := range pids {
		query.Add("pid", strconv.Itoa(pid))
	}
	err := c.get(ctx, slow, wire.PathStrange, query, &list)
	return list, err
}

// Resolve implements pipeline.Deck.
func (c *Client) Resolve(ctx context.Context, req pipeline.Resolve) (pipeline.Action, error) {
	var action pipeline.Action
	err := c.post(ctx, slow, wire.PathResolve, rand.Text(), req, &action)
	return action, err
}

// Stop tells agent and keeper to end; workers live on. It returns when the
// agent does not answer any more, or with ctx; End also waits for the processes.
func (c *Client) Stop(ctx context.Context) error {
	var before wire.Hello
	if err := c.postStop(ctx, &before); err != nil {
		return err
	}
	for {
		c.http.CloseIdleConnections()
		hello, err := c.Hello(ctx)
		switch {
		case errors.Is(err, ErrNoAgent), err == nil && hello.Instance != before.Instance:
			return nil
		case ctx.Err() != nil:
			return pipeline.Problemf(pipeline.ProblemUnreachable, "`pipedeck agent status` shows whether it ended",
				"cannot see the agent end: process %d still answers: %w", before.PID, ctx.Err())
		}
		pause(ctx, 20*time.Millisecond)
	}
}

func (c *Client) postStop(ctx context.Context, hello *wire.Hello) error {
	return c.post(ctx, quick, wire.PathStop, rand.Text(), struct{}{}, hello)
}

func (c *Client) get(ctx context.Context, limit time.Duration, path string, query url.Values, out any) error {
	if len(query) > 0 {
		path += "?" + query.Encode()
	}
	return c.roundTrip(ctx, c.http, limit, http.MethodGet, path, "", nil, out)
}

func (c *Client) post(ctx context.Context, limit time.Duration, path, key string, in, out any) error {
	body, err := json.Marshal(in)
	if err != nil {
		return pipeline.Problemf(pipeline.ProblemFailed, "", "cannot encode the request: %w", err)
	}
	return c.insist(ctx, func() error { return c.roundTrip(ctx, c.http, limit, http.MethodPost, path, key, body, out) })
}

// insist makes a mutating call again when its answer was lost with the link:
// its key makes the agent answer what it did the first time.
func (c *Client) insist(ctx context.Context, call func() error) error {
	for try := 0; ; try++ {
		err := call()
		if c.via == nil || try == len(insistAfter) || !errors.Is(err, ErrLink) || ctx.Err() != nil {
			return err
		}
		pause(ctx, insistAfter[try])
	}
}

// roundTrip makes one call of at most limit (0: as long as ctx).
func (c *Client) roundTrip(ctx context.Context, over *http.Client, limit time.Duration, method, path, key string, body []byte, out any) error {
	if limit > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, limit)
		defer cancel()
	}
	req, err := http.NewRequestWithContext(ctx, method, "http://agent"+path, bytes.NewReader(body))
	if err != nil {
		return pipeline.Problemf(pipeline.ProblemFailed, "", "cannot make the request: %w", err)
	}
	if key != "" {
		req.Header.Set(wire.HeaderKey, key)
	}
	resp, err := over.Do(req)
	if err != nil {
		return transportProblem(c.where, err)
	}
	defer func() { _ = resp.Body.Close() }()
	data, err := io.ReadAll(io.LimitReader(resp.Body, maxAnswer))
	if err != nil {
		return transportProblem(c.where, err)
	}
	if resp.StatusCode != http.StatusOK {
		return answerProblem(c.where, resp.StatusCode, data)
	}
	if err := json.Unmarshal(data, out); err != nil {
		return pipeline.Problemf(pipeline.ProblemFailed, "agent and client may be of different versions",
			"cannot read the agent's answer: %w", err)
	}
	return nil
}

// pause waits for d or the end of ctx.
func pause(ctx context.Context, d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
	case <-timer.C:
	}
}
