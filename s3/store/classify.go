package store

import (
	"context"
	"errors"
	"net/http"
	"strconv"
	"time"

	awshttp "github.com/aws/aws-sdk-go-v2/aws/transport/http"
	"github.com/aws/smithy-go"
	smithyhttp "github.com/aws/smithy-go/transport/http"

	"pipedeck/pipeline"
)

// classOf maps an endpoint's error codes. Codes that are not listed are
// classed by their HTTP status.
func classOf(code string) (pipeline.StoreClass, bool) {
	switch code {
	case "ExpiredToken", "ExpiredTokenException", "TokenRefreshRequired", "InvalidToken", "InvalidAccessKeyId",
		"SignatureDoesNotMatch", "InvalidSecurity", "NotSignedUp", "AuthorizationHeaderMalformed":
		return pipeline.StoreCredentials, true
	case "NoSuchBucket", "PermanentRedirect", "TemporaryRedirect", "AccessDenied", "AllAccessDisabled", "InvalidBucketName",
		"InvalidBucketState", "QuotaExceeded", "AccountProblem", "XMinioStorageFull", "MethodNotAllowed", "NotImplemented",
		"InvalidRegion", "IllegalLocationConstraintException":
		return pipeline.StoreConfig, true
	case "SlowDown", "SlowDownRead", "SlowDownWrite", "Throttling", "ThrottlingException", "TooManyRequests",
		"TooManyRequestsException", "RequestLimitExceeded", "ServiceUnavailable", "BandwidthLimitExceeded":
		return pipeline.StoreThrottled, true
	case "BadDigest", "InvalidDigest", "XAmzContentSHA256Mismatch", "XAmzContentChecksumMismatch", "ContentSHA256Mismatch":
		return pipeline.StoreIntegrity, true
	case "NoSuchKey", "NotFound", "NoSuchUpload":
		return pipeline.StoreMissing, true
	case "PreconditionFailed", "ConditionalRequestConflict":
		return pipeline.StoreExists, true
	case "KeyTooLongError", "EntityTooLarge", "EntityTooSmall", "InvalidObjectName", "XMinioInvalidObjectName",
		"InvalidURI", "InvalidPart", "InvalidPartOrder", "XMinioObjectExistsAsDirectory", "ObjectParentIsFile":
		return pipeline.StoreFile, true
	case "RequestTimeout", "RequestTimeTooSkewed", "IncompleteBody", "InternalError", "OperationAborted":
		return pipeline.StoreTransient, true
	}
	return "", false
}

func classOfStatus(status int) pipeline.StoreClass {
	switch {
	case status == http.StatusTooManyRequests, status == http.StatusServiceUnavailable:
		return pipeline.StoreThrottled
	case status == http.StatusInsufficientStorage:
		return pipeline.StoreConfig
	case status == http.StatusRequestTimeout, status >= 500, status < 300:
		return pipeline.StoreTransient
	case status == http.StatusNotFound:
		return pipeline.StoreMissing
	case status == http.StatusPreconditionFailed, status == http.StatusConflict:
		return pipeline.StoreExists
	case status == http.StatusUnauthorized, status == http.StatusForbidden:
		return pipeline.StoreCredentials
	case status == http.StatusRequestEntityTooLarge:
		return pipeline.StoreFile
	}
	return pipeline.StoreConfig
}

// classify turns an SDK error into the port's error. ctx is the attempt's: its
// cause tells a stall from a deadline from a cancelled caller.
func classify(ctx context.Context, op, key string, err error) *pipeline.StoreError {
	if done, ok := errors.AsType[*pipeline.StoreError](err); ok {
		return done
	}
	e := &pipeline.StoreError{Op: op, Key: key, Class: pipeline.StoreTransient, Err: err}
	if noCreds, ok := errors.AsType[*NoCredentialsError](err); ok {
		e.Class, e.Hint, e.Err = pipeline.StoreCredentials, hintNoCredentials, noCreds
		if noCreds.Hint != "" {
			e.Hint = noCreds.Hint
		}
		return e
	}
	var re *awshttp.ResponseError
	if !errors.As(err, &re) || re.HTTPStatusCode() == 0 {
		classifyTransport(ctx, e)
		return e
	}
	e.Status = re.HTTPStatusCode()
	e.RetryAfter = retryAfter(re.Response.Header)
	message := ""
	if api, ok := errors.AsType[smithy.APIError](err); ok {
		e.Code, message = api.ErrorCode(), api.ErrorMessage()
	}
	e.Class = classOfAnswer(e.Code, message, e.Status)
	e.Hint = hintFor(e, re.Response)
	if message != "" {
		e.Err = errors.New(message)
	}
	return e
}

// classOfAnswer also reads the message where a code is shared by several
// causes.
func classOfAnswer(code, message string, status int) pipeline.StoreClass {
	switch code {
	case "InvalidArgument", "InvalidRequest":
		if mentionsChecksum(message) {
			return pipeline.StoreIntegrity
		}
		return pipeline.StoreConfig
	case "AccessDenied":
		if mentionsExpiry(message) {
			return pipeline.StoreCredentials
		}
	}
	if class, ok := classOf(code); ok {
		return class
	}
	return classOfStatus(status)
}

func retryAfter(h http.Header) time.Duration {
	if n, err := strconv.Atoi(h.Get("Retry-After")); err == nil && n > 0 {
		return time.Duration(n) * time.Second
	}
	if n, err := strconv.Atoi(h.Get("X-Amz-Retry-After")); err == nil && n > 0 {
		return time.Duration(n) * time.Millisecond
	}
	return 0
}

func hintFor(e *pipeline.StoreError, r *smithyhttp.Response) string {
	if h := hintForCode(e.Code, r); h != "" {
		return h
	}
	return classHints[e.Class]
}

// classHints are for answers whose code says no more than their class.
var classHints = map[pipeline.StoreClass]string{
	pipeline.StoreCredentials: "check the access key and its secret, and that it may use this bucket",
	pipeline.StoreThrottled:   "the endpoint asks for fewer requests; it is tried again, slower",
	pipeline.StoreIntegrity:   "the endpoint received other bytes than were sent; look at proxies on the way",
}
