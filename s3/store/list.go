package store

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"sync"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/s3"
	"github.com/aws/aws-sdk-go-v2/service/s3/types"
	"github.com/aws/smithy-go"
	"github.com/aws/smithy-go/middleware"
	smithyhttp "github.com/aws/smithy-go/transport/http"

	"pipedeck/pipeline"
)

const (
	maxKeys     = 1000
	maxPageSize = 32 << 20 // bytes; a full page of the longest keys is below 8 MiB
)

// List returns one page. A page that breaks the rules of listings (order,
// prefix, start, tokens, closing tag) is an error, never a shorter truth. An
// empty page with Next set is legal.
func (c *Client) List(ctx context.Context, req pipeline.ListRequest) (pipeline.ListPage, error) {
	ctx, stop := withDeadline(ctx, 1<<20)
	defer stop()
	in := &s3.ListObjectsV2Input{
		Bucket:       &c.opt.Bucket,
		EncodingType: types.EncodingTypeUrl,
		MaxKeys:      aws.Int32(int32(pageSize(req.Max))),
	}
	if req.Prefix != "" {
		in.Prefix = &req.Prefix
	}
	switch {
	case req.Token != "":
		in.ContinuationToken = &req.Token
	case req.StartAfter != "":
		in.StartAfter = &req.StartAfter
	}
	dec := &pageDecoder{buffers: &c.buffers}
	if _, err := c.api.ListObjectsV2(ctx, in, dec.install); err != nil {
		return pipeline.ListPage{}, classify(ctx, "list", req.Prefix, err)
	}
	page, err := dec.page.check(req)
	if err != nil {
		return pipeline.ListPage{}, &pipeline.StoreError{
			Op: "list", Key: req.Prefix, Class: pipeline.StoreTransient, Status: 200, Err: err,
			Hint: "the endpoint's listing contradicts itself; it is asked again and nothing is deleted on it",
		}
	}
	return page, nil
}

func pageSize(n int) int {
	if n <= 0 || n > maxKeys {
		return maxKeys
	}
	return n
}

// check holds a decoded page against what was asked.
func (p *page) check(req pipeline.ListRequest) (pipeline.ListPage, error) {
	last := req.StartAfter
	for i := range p.objects {
		key := p.objects[i].Key
		switch {
		case !strings.HasPrefix(key, req.Prefix):
			return pipeline.ListPage{}, fmt.Errorf("the listing of %q holds %q", req.Prefix, key)
		case key <= last && i == 0:
			return pipeline.ListPage{}, fmt.Errorf("the listing after %q begins with %q", last, key)
		case key <= last:
			return pipeline.ListPage{}, fmt.Errorf("the listing is out of order: %q after %q", key, last)
		}
		last = key
	}
	switch {
	case !p.truncated:
		return pipeline.ListPage{Objects: p.objects}, nil
	case p.next == "":
		return pipeline.ListPage{}, errors.New("the listing says there is more and gives no token")
	case p.next == req.Token:
		return pipeline.ListPage{}, errors.New("the listing repeats its token")
	}
	return pipeline.ListPage{Objects: p.objects, Next: p.next}, nil
}

// pageDecoder replaces the SDK's XML decoding of a listing, which is over nine
// tenths of its cost. All but a 200 goes the SDK's way.
type pageDecoder struct {
	buffers *sync.Pool
	sdk     middleware.DeserializeMiddleware
	page    page
}

const deserializerID = "OperationDeserializer"

func (d *pageDecoder) install(o *s3.Options) {
	o.APIOptions = append(o.APIOptions, func(st *middleware.Stack) error {
		old, err := st.Deserialize.Swap(deserializerID, d)
		d.sdk = old
		return err
	})
}

// ID is that of the middleware it stands in for.
func (*pageDecoder) ID() string { return deserializerID }

// HandleDeserialize decodes the page, or hands the answer to the SDK.
func (d *pageDecoder) HandleDeserialize(ctx context.Context, in middleware.DeserializeInput, next middleware.DeserializeHandler) (
	middleware.DeserializeOutput, middleware.Metadata, error,
) {
	out, md, err := next.HandleDeserialize(ctx, in)
	resp, ok := out.RawResponse.(*smithyhttp.Response)
	if err != nil || !ok || resp.StatusCode != 200 {
		return d.sdk.HandleDeserialize(ctx, in, answered{out, md, err})
	}
	defer func() { _ = resp.Body.Close() }()
	buf := d.buffer()
	defer d.buffers.Put(buf)
	if _, err := buf.ReadFrom(io.LimitReader(resp.Body, maxPageSize)); err != nil {
		return out, md, fmt.Errorf("cannot read listing: %w", err)
	}
	d.page, err = scanPage(buf.Bytes())
	var api *smithy.GenericAPIError
	if err != nil && !errors.As(err, &api) {
		err = fmt.Errorf("cannot read listing: %w", err)
	}
	out.Result = &s3.ListObjectsV2Output{}
	return out, md, err
}

func (d *pageDecoder) buffer() *bytes.Buffer {
	if b, ok := d.buffers.Get().(*bytes.Buffer); ok {
		b.Reset()
		return b
	}
	return bytes.NewBuffer(make([]byte, 0, 512<<10))
}

// answered gives an answer that was already received to the next middleware.
type answered struct {
	out middleware.DeserializeOutput
	md  middleware.Metadata
	err error
}

// HandleDeserialize returns the answer.
func (a answered) HandleDeserialize(context.Context, middleware.DeserializeInput) (middleware.DeserializeOutput, middleware.Metadata, error) {
	return a.out, a.md, a.err
}
