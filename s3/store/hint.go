package store

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"strings"
	"syscall"
	"time"

	smithyhttp "github.com/aws/smithy-go/transport/http"

	"pipedeck/pipeline"
)

const hintNoCredentials = "set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or AWS_PROFILE, or write ~/.aws/credentials" + hintAgentEnv

// hintAgentEnv says why a corrected environment alone does not help.
const hintAgentEnv = "; a running agent keeps the environment it was started with (`pipedeck agent stop`, then start again), files are read anew"

// hintForCode says what the operator can do about an endpoint's code.
func hintForCode(code string, r *smithyhttp.Response) string {
	switch code {
	case "ExpiredToken", "ExpiredTokenException", "TokenRefreshRequired":
		return "the session token has expired; get a new one: it is picked up by itself"
	case "InvalidAccessKeyId":
		return "the endpoint does not know this access key; check AWS_ACCESS_KEY_ID, AWS_PROFILE and the endpoint" + hintAgentEnv
	case "SignatureDoesNotMatch":
		if s := clockSkew(r); s != 0 {
			return skewHint(s)
		}
		return "the secret key does not belong to the access key; check AWS_SECRET_ACCESS_KEY" + hintAgentEnv
	case "RequestTimeTooSkewed":
		return skewHint(clockSkew(r))
	case "NoSuchBucket":
		return "create the bucket, or correct store.bucket"
	case "PermanentRedirect", "TemporaryRedirect", "AuthorizationHeaderMalformed", "MovedPermanently":
		if region := r.Header.Get("X-Amz-Bucket-Region"); region != "" {
			return fmt.Sprintf("the bucket is in region %q: set store.region", region)
		}
		return "the bucket is in another region: correct store.region or store.endpoint"
	case "AccessDenied":
		return "the key needs s3:ListBucket on the bucket and s3:PutObject, s3:GetObject, s3:DeleteObject on its objects; an account over its quota answers so too"
	case "QuotaExceeded", "XMinioStorageFull", "AccountProblem":
		return "the store takes no more bytes: free space there or raise the quota"
	case "InvalidBucketName":
		return "correct store.bucket"
	case "KeyTooLongError":
		return "shorten the output's key template or the file's name"
	}
	if r.StatusCode == http.StatusInsufficientStorage {
		return hintForCode("QuotaExceeded", r)
	}
	if r.StatusCode == http.StatusMovedPermanently {
		return hintForCode("PermanentRedirect", r)
	}
	return ""
}

// clockSkew is how far the endpoint's clock is ahead of ours, or 0 if it is
// not known or below what endpoints tolerate.
func clockSkew(r *smithyhttp.Response) time.Duration {
	at, err := http.ParseTime(r.Header.Get("Date"))
	if err != nil {
		return 0
	}
	if skew := time.Until(at).Round(time.Second); skew.Abs() > 4*time.Minute {
		return skew
	}
	return 0
}

func skewHint(skew time.Duration) string {
	if skew == 0 {
		return "set this machine's clock (NTP)"
	}
	return fmt.Sprintf("this machine's clock is off by %.0f s: set it (NTP)", -skew.Seconds())
}

func mentionsChecksum(message string) bool {
	m := strings.ToLower(message)
	return strings.Contains(m, "checksum") || strings.Contains(m, "digest") || strings.Contains(m, "md5") || strings.Contains(m, "sha256")
}

func mentionsExpiry(message string) bool {
	m := strings.ToLower(message)
	return strings.Contains(m, "expired")
}

// classifyTransport explains a request that got no answer. All of these can
// pass by themselves, so they stay transient but for a certificate.
func classifyTransport(ctx context.Context, e *pipeline.StoreError) {
	if cause := context.Cause(ctx); cause != nil {
		e.Err = cause // says more than the "context canceled" of the request
		e.Hint = deadlineHint(cause)
		return
	}
	if sent, ok := errors.AsType[*url.Error](e.Err); ok {
		e.Err = sent.Err // without the SDK's and net/http's framing
	}
	var dns *net.DNSError
	var unknownCA x509.UnknownAuthorityError
	var badHost x509.HostnameError
	var badCert *tls.CertificateVerificationError
	switch {
	case errors.As(e.Err, &dns):
		e.Err = dns
		e.Hint = fmt.Sprintf("%q cannot be resolved: check store.endpoint and DNS", dns.Name)
	case errors.As(e.Err, &unknownCA), errors.As(e.Err, &badHost), errors.As(e.Err, &badCert):
		e.Class = pipeline.StoreConfig
		e.Hint = "the endpoint's certificate is not trusted here: check store.endpoint, the clock and the CA certificates"
	case strings.Contains(e.Err.Error(), "server gave HTTP response to HTTPS client"): // net/http keeps no type
		e.Class = pipeline.StoreConfig
		e.Hint = "the endpoint does not speak TLS: use http:// in store.endpoint"
	case errors.Is(e.Err, syscall.ECONNREFUSED):
		e.Hint = "nothing listens at store.endpoint: check the address, or wait for the server"
	case errors.Is(e.Err, syscall.ENETUNREACH), errors.Is(e.Err, syscall.EHOSTUNREACH):
		e.Hint = "the endpoint cannot be reached: check the network"
	}
}

func deadlineHint(cause error) string {
	if errors.Is(cause, errStalled) || errors.Is(cause, context.DeadlineExceeded) {
		return "the endpoint is too slow or hangs; it is tried again"
	}
	return ""
}
