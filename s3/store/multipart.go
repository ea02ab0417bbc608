package store

import (
	"context"
	"errors"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/s3"
	"github.com/aws/aws-sdk-go-v2/service/s3/types"

	"pipedeck/pipeline"
)

// completeTimeout is long because an endpoint may take minutes to join parts.
const completeTimeout = 10 * time.Minute

// CreateMultipart begins an upload in parts.
func (c *Client) CreateMultipart(ctx context.Context, key string) (string, error) {
	ctx, stop := withDeadline(ctx, 0)
	defer stop()
	out, err := c.api.CreateMultipartUpload(ctx, &s3.CreateMultipartUploadInput{Bucket: &c.opt.Bucket, Key: &key})
	if err != nil {
		return "", classify(ctx, "create upload of", key, err)
	}
	if aws.ToString(out.UploadId) == "" {
		return "", &pipeline.StoreError{
			Op: "create upload of", Key: key, Class: pipeline.StoreTransient, Status: 200,
			Err: errors.New("the answer carries no upload id"),
		}
	}
	return *out.UploadId, nil
}

// UploadPart sends one part, with a deadline of its own. Content-MD5 protects
// it: checksum headers on parts would have to be named at the start of the
// upload, which several endpoints refuse.
func (c *Client) UploadPart(ctx context.Context, part pipeline.PartRequest) (string, error) {
	p, err := c.Profile(ctx)
	if err != nil {
		return "", err
	}
	return c.uploadPart(ctx, part, p.SignedPayload)
}

func (c *Client) uploadPart(ctx context.Context, part pipeline.PartRequest, signed bool) (string, error) {
	ctx, stop := withDeadline(ctx, len(part.Body))
	defer stop()
	ctx, dog, end := newWatchdog(ctx, c.opt.StallTimeout)
	defer end()
	out, err := c.api.UploadPart(ctx, &s3.UploadPartInput{
		Bucket:        &c.opt.Bucket,
		Key:           &part.Key,
		UploadId:      &part.UploadID,
		PartNumber:    aws.Int32(int32(part.Number)),
		Body:          newBody(part.Body, dog),
		ContentLength: aws.Int64(int64(len(part.Body))),
		ContentMD5:    aws.String(base64MD5(part.MD5)),
	}, payloadMode(signed))
	if err != nil {
		return "", classify(ctx, "put part of", part.Key, err)
	}
	res, err := putResult(part.Key, out.ETag)
	return res.ETag, err
}

// CompleteMultipart joins the parts. An answer that broke off is transient:
// the object may be there, so look before trying again.
func (c *Client) CompleteMultipart(ctx context.Context, req pipeline.CompleteRequest) (pipeline.PutResult, error) {
	ctx, stop := context.WithTimeout(ctx, completeTimeout)
	defer stop()
	parts := make([]types.CompletedPart, len(req.ETags))
	for i, etag := range req.ETags {
		parts[i] = types.CompletedPart{ETag: aws.String(quote(etag)), PartNumber: aws.Int32(int32(i + 1))}
	}
	in := &s3.CompleteMultipartUploadInput{
		Bucket:          &c.opt.Bucket,
		Key:             &req.Key,
		UploadId:        &req.UploadID,
		MultipartUpload: &types.CompletedMultipartUpload{Parts: parts},
	}
	if req.IfNoneMatch {
		in.IfNoneMatch = aws.String("*")
	}
	if req.IfMatch != "" {
		in.IfMatch = aws.String(quote(req.IfMatch))
	}
	out, err := c.api.CompleteMultipartUpload(ctx, in)
	if err != nil {
		return pipeline.PutResult{}, classify(ctx, "complete upload of", req.Key, err)
	}
	if unquote(aws.ToString(out.ETag)) == "" {
		return pipeline.PutResult{}, &pipeline.StoreError{
			Op: "complete upload of", Key: req.Key, Class: pipeline.StoreTransient, Status: 200,
			Err: errors.New("the answer broke off: the object may or may not be there"),
		}
	}
	return pipeline.PutResult{ETag: unquote(*out.ETag)}, nil
}

// AbortMultipart gives up an upload. One that is gone is no error.
func (c *Client) AbortMultipart(ctx context.Context, key, uploadID string) error {
	ctx, stop := withDeadline(ctx, 0)
	defer stop()
	_, err := c.api.AbortMultipartUpload(ctx, &s3.AbortMultipartUploadInput{Bucket: &c.opt.Bucket, Key: &key, UploadId: &uploadID})
	if err != nil {
		if serr := classify(ctx, "abort upload of", key, err); serr.Code != "NoSuchUpload" {
			return serr
		}
	}
	return nil
}
