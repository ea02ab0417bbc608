package store

import (
	"errors"
	"testing"
	"time"
)

func TestForwardedCredentialsSayWhyThereAreNone(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 11, 30, 12, 0, 0, 0, time.UTC)
	f := NewForwarded(func() time.Time { return now })
	check := func(want string) {
		t.Helper()
		_, err := f.Retrieve(t.Context())
		none, ok := errors.AsType[*NoCredentialsError](err)
		if !ok || none.Error() != want || none.Hint != hintForwarded {
			t.Errorf("%v", err)
		}
		_, err = New(Options{Bucket: "b", Endpoint: "http://127.0.0.1:1", Credentials: f}).Head(t.Context(), "k")
		if e := asStoreError(t, err); e.Class != "credentials" || e.Hint != hintForwarded {
			t.Errorf("%+v", e)
		}
	}
	check("no credentials were forwarded to this node since its keeper started")
	f.Set("id", "secret", "token", now.Add(time.Hour))
	if got, err := f.Retrieve(t.Context()); err != nil || got.SecretAccessKey != "secret" || got.SessionToken != "token" {
		t.Errorf("%+v, %v", got, err)
	}
	now = now.Add(time.Hour)
	check("the forwarded credentials ran out at 2026-11-30T13:00:00Z")
	f.Set("id2", "secret", "", time.Time{})
	if got, err := f.Retrieve(t.Context()); err != nil || got.AccessKeyID != "id2" || got.CanExpire {
		t.Errorf("%+v, %v", got, err)
	}
}
