package store

import (
	"context"
	"encoding/base64"
	"encoding/binary"
	"errors"
	"io"
	"strconv"
	"strings"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/s3"

	"pipedeck/pipeline"
)

// Put stores one object in one request, in the form that the probe found the
// endpoint to take. The first Put waits for the probe.
func (c *Client) Put(ctx context.Context, req pipeline.PutRequest) (pipeline.PutResult, error) {
	p, err := c.Profile(ctx)
	if err != nil {
		return pipeline.PutResult{}, err
	}
	return c.put(ctx, req, formOf(p))
}

// form is how a body is protected on its way.
type form struct {
	checksum bool // x-amz-checksum-crc32c beside Content-MD5
	signed   bool // the body's SHA-256 is in the signature
}

func formOf(p pipeline.StoreProfile) form {
	return form{checksum: p.ChecksumHeader, signed: p.SignedPayload}
}

func (c *Client) put(ctx context.Context, req pipeline.PutRequest, f form) (pipeline.PutResult, error) {
	ctx, stop := withDeadline(ctx, len(req.Body))
	defer stop()
	ctx, dog, end := newWatchdog(ctx, c.opt.StallTimeout)
	defer end()
	in := &s3.PutObjectInput{
		Bucket:        &c.opt.Bucket,
		Key:           &req.Key,
		Body:          newBody(req.Body, dog),
		ContentLength: aws.Int64(int64(len(req.Body))),
		ContentMD5:    aws.String(base64MD5(req.MD5)),
	}
	if f.checksum {
		in.ChecksumCRC32C = aws.String(base64CRC(req.CRC32C))
	}
	if req.IfNoneMatch {
		in.IfNoneMatch = aws.String("*")
	}
	if req.IfMatch != "" {
		in.IfMatch = aws.String(quote(req.IfMatch))
	}
	out, err := c.api.PutObject(ctx, in, payloadMode(f.signed))
	if err != nil {
		return pipeline.PutResult{}, classify(ctx, "put", req.Key, err)
	}
	return putResult(req.Key, out.ETag)
}

// putResult insists on an ETag: an endpoint of another region was seen to
// answer 200 with nothing in it.
func putResult(key string, etag *string) (pipeline.PutResult, error) {
	e := unquote(aws.ToString(etag))
	if e == "" {
		return pipeline.PutResult{}, &pipeline.StoreError{
			Op: "put", Key: key, Class: pipeline.StoreIntegrity, Status: 200,
			Hint: "check endpoint and region: the answer does not look like S3's",
			Err:  errors.New("the answer carries no ETag"),
		}
	}
	return pipeline.PutResult{ETag: e}, nil
}

// Head returns what the endpoint tells of an object.
func (c *Client) Head(ctx context.Context, key string) (pipeline.Object, error) {
	ctx, stop := withDeadline(ctx, 0)
	defer stop()
	out, err := c.api.HeadObject(ctx, &s3.HeadObjectInput{Bucket: &c.opt.Bucket, Key: &key})
	if err != nil {
		return pipeline.Object{}, c.missingOr(classify(ctx, "head", key, err))
	}
	obj := pipeline.Object{
		Key: key, Size: aws.ToInt64(out.ContentLength), ETag: unquote(aws.ToString(out.ETag)),
		Modified: aws.ToTime(out.LastModified),
	}
	if obj.ETag == "" {
		// A connection that breaks behind the status line reads as an object of
		// no bytes: nothing may follow from that.
		return pipeline.Object{}, &pipeline.StoreError{
			Op: "head", Key: key, Class: pipeline.StoreTransient, Status: 200,
			Hint: "check endpoint and region: the answer does not look like S3's",
			Err:  errors.New("the answer carries no ETag"),
		}
	}
	return obj, nil
}

// missingOr reads a 403 as "no such object" on endpoints that were found to
// answer a missing key so.
func (c *Client) missingOr(err *pipeline.StoreError) error {
	p := c.profile.Load()
	if err.Status == 403 && p != nil && p.MissingIsDenied && (err.Code == "" || err.Code == "Forbidden" || err.Code == "AccessDenied") {
		err.Class, err.Hint = pipeline.StoreMissing, ""
	}
	return err
}

// Get reads an object from offset. The reader ends with a *StoreError when the
// transfer breaks; Close it. Object.Size is that of the whole object.
func (c *Client) Get(ctx context.Context, key string, offset int64) (io.ReadCloser, pipeline.Object, error) {
	in := &s3.GetObjectInput{Bucket: &c.opt.Bucket, Key: &key}
	if offset > 0 {
		in.Range = aws.String("bytes=" + strconv.FormatInt(offset, 10) + "-")
	}
	ctx, dog, end := newWatchdog(ctx, c.opt.StallTimeout)
	out, err := c.api.GetObject(ctx, in)
	if err != nil {
		serr := classify(ctx, "get", key, err)
		end()
		return nil, pipeline.Object{}, c.missingOr(serr)
	}
	obj := pipeline.Object{
		Key: key, Size: aws.ToInt64(out.ContentLength), ETag: unquote(aws.ToString(out.ETag)),
		Modified: aws.ToTime(out.LastModified),
	}
	if offset > 0 {
		size, err := sizeOfRange(aws.ToString(out.ContentRange))
		if err != nil {
			_ = out.Body.Close()
			end()
			return nil, pipeline.Object{}, &pipeline.StoreError{Op: "get", Key: key, Class: pipeline.StoreTransient, Status: 200, Err: err}
		}
		obj.Size = size
	}
	return &answerBody{ReadCloser: out.Body, ctx: ctx, key: key, dog: dog, cancel: end}, obj, nil
}

// sizeOfRange reads the whole size from "bytes 5-9/10".
func sizeOfRange(contentRange string) (int64, error) {
	_, size, ok := strings.Cut(contentRange, "/")
	if !ok {
		return 0, errors.New("the endpoint ignored the range")
	}
	n, err := strconv.ParseInt(size, 10, 64)
	if err != nil {
		return 0, errors.New("the endpoint's Content-Range has no size")
	}
	return n, nil
}

// Delete removes an object. A missing one is no error.
func (c *Client) Delete(ctx context.Context, key string) error {
	ctx, stop := withDeadline(ctx, 0)
	defer stop()
	if _, err := c.api.DeleteObject(ctx, &s3.DeleteObjectInput{Bucket: &c.opt.Bucket, Key: &key}); err != nil {
		if serr := classify(ctx, "delete", key, err); serr.Class != pipeline.StoreMissing || serr.Code == "NoSuchBucket" {
			return serr
		}
	}
	return nil
}

func base64MD5(sum [16]byte) string { return base64.StdEncoding.EncodeToString(sum[:]) }

func base64CRC(sum uint32) string {
	return base64.StdEncoding.EncodeToString(binary.BigEndian.AppendUint32(nil, sum))
}

func unquote(etag string) string { return strings.Trim(etag, `"`) }

func quote(etag string) string { return `"` + etag + `"` }
