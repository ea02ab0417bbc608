package store

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
)

// Forwarded are credentials that somebody hands over and that live in memory.
type Forwarded struct {
	mu    sync.Mutex
	creds aws.Credentials
	now   func() time.Time
}

// NewForwarded returns Forwarded without any; now defaults to the wall clock.
func NewForwarded(now func() time.Time) *Forwarded {
	if now == nil {
		now = time.Now
	}
	return &Forwarded{now: now}
}

// Set replaces the credentials; a zero expires means that they do not.
func (f *Forwarded) Set(id, secret, token string, expires time.Time) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.creds = aws.Credentials{
		AccessKeyID: id, SecretAccessKey: secret, SessionToken: token,
		CanExpire: !expires.IsZero(), Expires: expires, Source: "forwarded",
	}
}

// hintForwarded is what helps where none were handed over, or have run out.
const hintForwarded = "open the console or run any command on a machine that has them: they are handed over by itself"

// Retrieve returns the current keys, or a *NoCredentialsError.
func (f *Forwarded) Retrieve(context.Context) (aws.Credentials, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	switch {
	case !f.creds.HasKeys():
		return aws.Credentials{}, &NoCredentialsError{Hint: hintForwarded, Err: errors.New("no credentials were forwarded to this node since its keeper started")}
	case f.creds.CanExpire && !f.now().Before(f.creds.Expires):
		return aws.Credentials{}, &NoCredentialsError{Hint: hintForwarded, Err: fmt.Errorf("the forwarded credentials ran out at %s", f.creds.Expires.UTC().Format(time.RFC3339))}
	}
	return f.creds, nil
}
