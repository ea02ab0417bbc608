package store

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"pipedeck/pipeline"
)

// CheckItem is one line of `pipedeck check` about the store.
type CheckItem struct {
	Name   string `json:"name"`
	Result string `json:"result"` // one of the Check constants
	Text   string `json:"text"`   // what was seen
	Hint   string `json:"hint,omitempty"`
}

// Values of CheckItem.Result.
const (
	CheckOK      = "ok"
	CheckWarn    = "warn"
	CheckFail    = "fail"
	CheckUnknown = "unknown"
)

// checkNames are the items of Probe, in order.
var checkNames = [...]string{"credentials", "endpoint", "bucket", "write-read-delete", "wrong checksum", "verification", "conditional writes"}

// Probe looks at everything that uploads depend on, from scratch, and always
// answers with every item: what could not be tried is unknown.
func (c *Client) Probe(ctx context.Context) []CheckItem {
	items := c.probeAccess(ctx)
	if !slices.ContainsFunc(items, func(i CheckItem) bool { return i.Result == CheckFail || i.Result == CheckUnknown }) {
		items = append(items, c.probeAbilities(ctx)...)
	}
	for _, name := range checkNames[len(items):] {
		items = append(items, CheckItem{Name: name, Result: CheckUnknown, Text: "not tried: see above"})
	}
	return items
}

// probeAccess covers credentials, endpoint and bucket.
func (c *Client) probeAccess(ctx context.Context) []CheckItem {
	creds, err := c.opt.Credentials.Retrieve(ctx)
	if err != nil {
		return []CheckItem{{"credentials", CheckFail, err.Error(), hintNoCredentials}}
	}
	items := []CheckItem{{"credentials", CheckOK, describeKey(creds.AccessKeyID, creds.Source), ""}}
	if creds.CanExpire {
		items[0].Text += ", until " + creds.Expires.UTC().Format(time.RFC3339)
	}
	began := time.Now()
	_, err = c.List(ctx, pipeline.ListRequest{Prefix: c.opt.ScratchPrefix, Max: 1})
	took := time.Since(began).Round(time.Millisecond)
	var e *pipeline.StoreError
	switch {
	case err == nil:
		return append(items,
			CheckItem{"endpoint", CheckOK, fmt.Sprintf("%s answers in %s", c.endpoint(), took), ""},
			CheckItem{"bucket", CheckOK, fmt.Sprintf("%q can be listed", c.opt.Bucket), ""})
	case errors.As(err, &e) && e.Status != 0:
		items = append(items, CheckItem{"endpoint", CheckOK, fmt.Sprintf("%s answers in %s", c.endpoint(), took), ""})
		if e.Class == pipeline.StoreCredentials {
			items[0] = CheckItem{"credentials", CheckFail, items[0].Text + ": " + e.Error(), e.Hint}
			return append(items, CheckItem{"bucket", CheckUnknown, "not tried: see above", ""})
		}
		return append(items, CheckItem{"bucket", failOrUnknown(e), e.Error(), e.Hint})
	}
	return append(items, failed("endpoint", err))
}

func failOrUnknown(e *pipeline.StoreError) string {
	if e.Class == pipeline.StoreTransient || e.Class == pipeline.StoreThrottled {
		return CheckUnknown
	}
	return CheckFail
}

func failed(name string, err error) CheckItem {
	item := CheckItem{Name: name, Result: CheckFail, Text: err.Error()}
	if e, ok := errors.AsType[*pipeline.StoreError](err); ok {
		item.Hint = e.Hint
	}
	return item
}

func (c *Client) endpoint() string {
	if c.opt.Endpoint == "" {
		return "AWS " + c.opt.Region
	}
	return c.opt.Endpoint
}

// describeKey names a key without showing all of it.
func describeKey(id, source string) string {
	if len(id) > 4 {
		id = "…" + id[len(id)-4:]
	}
	if source == "" {
		return "key " + id
	}
	source = strings.TrimSuffix(source, "Provider")
	return fmt.Sprintf("key %s from %s", id, source)
}

// probeAbilities covers what the endpoint does with objects.
func (c *Client) probeAbilities(ctx context.Context) []CheckItem {
	p, err := c.Profile(ctx)
	if err != nil {
		return []CheckItem{failed("write-read-delete", err)}
	}
	trip := CheckItem{"write-read-delete", CheckOK, "an object was put, headed, listed, read back and deleted", ""}
	if err := c.roundTrip(ctx); err != nil {
		trip = failed("write-read-delete", err)
	}
	return []CheckItem{trip, wrongChecksumItem(p), verificationItem(p), conditionalItem(p)}
}

func wrongChecksumItem(p pipeline.StoreProfile) CheckItem {
	item := CheckItem{Name: "wrong checksum", Result: CheckOK}
	switch {
	case p.ValidatesMD5 && p.ValidatesChecksum:
		item.Text = "refused, both Content-MD5 and CRC32C"
	case p.ValidatesMD5:
		item.Text = "refused (Content-MD5); CRC32C is not looked at"
	case p.ValidatesChecksum:
		item.Text = "refused (CRC32C); Content-MD5 is not looked at"
	default:
		item.Result, item.Text = CheckWarn, "accepted: the endpoint does not look at checksums"
		item.Hint = "bytes damaged on the way are found by verification only, after the upload"
	}
	return item
}

func verificationItem(p pipeline.StoreProfile) CheckItem {
	if p.ETagIsMD5 {
		return CheckItem{"verification", CheckOK, "listings show the MD5 of stored bytes", ""}
	}
	return CheckItem{
		"verification", CheckWarn, "listings do not show the MD5 of stored bytes",
		"every object is read back before its local file goes: expect twice the traffic",
	}
}

func conditionalItem(p pipeline.StoreProfile) CheckItem {
	if p.ConditionalPut {
		return CheckItem{"conditional writes", CheckOK, "If-None-Match is honoured", ""}
	}
	return CheckItem{
		"conditional writes", CheckWarn, "If-None-Match is ignored or refused",
		"let one agent only write to a prefix",
	}
}

// roundTrip writes, looks at, reads and removes one object.
func (c *Client) roundTrip(ctx context.Context) error {
	req := newProber(c).request("trip")
	res, err := c.Put(ctx, req)
	if err != nil {
		return err
	}
	err = c.readBack(ctx, req, res.ETag)
	if derr := c.Delete(context.WithoutCancel(ctx), req.Key); err == nil {
		err = derr
	}
	return err
}

func (c *Client) readBack(ctx context.Context, req pipeline.PutRequest, etag string) error {
	obj, err := c.Head(ctx, req.Key)
	if err != nil {
		return err
	}
	page, err := c.List(ctx, pipeline.ListRequest{Prefix: req.Key})
	if err != nil {
		return err
	}
	if len(page.Objects) != 1 || page.Objects[0].ETag != obj.ETag || obj.ETag != etag || obj.Size != int64(len(req.Body)) {
		return lied(req.Key, "put, head and listing disagree")
	}
	r, _, err := c.Get(ctx, req.Key, 0)
	if err != nil {
		return err
	}
	defer func() { _ = r.Close() }()
	data, err := io.ReadAll(io.LimitReader(r, int64(len(req.Body))+1))
	if err != nil {
		return err
	}
	if !bytes.Equal(data, req.Body) {
		return lied(req.Key, "other bytes came back than were written")
	}
	return nil
}

func lied(key, what string) error {
	return &pipeline.StoreError{
		Op: "probe", Key: key, Class: pipeline.StoreIntegrity, Status: 200, Err: errors.New(what),
		Hint: "do not trust this endpoint with data; look at proxies on the way",
	}
}
