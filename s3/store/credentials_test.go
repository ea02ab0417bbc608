package store

import (
	"errors"
	"os"
	"path/filepath"
	"testing"
	"testing/synctest"
	"time"
)

// envOf isolates the chain from the machine's own configuration.
func envOf(dir string, more map[string]string) func(string) string {
	return func(name string) string {
		if v, ok := more[name]; ok {
			return v
		}
		if name == "HOME" {
			return dir
		}
		return ""
	}
}

func writeKeys(t *testing.T, dir, text string) {
	t.Helper()
	path := filepath.Join(dir, ".aws", "credentials")
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

func TestCredentialsFromEnvironment(t *testing.T) {
	t.Parallel()
	c := LoadCredentials(envOf(t.TempDir(), map[string]string{
		"AWS_ACCESS_KEY_ID": "id", "AWS_SECRET_ACCESS_KEY": "secret", "AWS_SESSION_TOKEN": "token",
	}))
	got, err := c.Retrieve(t.Context())
	if err != nil || got.AccessKeyID != "id" || got.SecretAccessKey != "secret" || got.SessionToken != "token" {
		t.Errorf("%+v, %v", got, err)
	}
}

func TestCredentialsFromProfile(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	writeKeys(t, dir, "[default]\naws_access_key_id = d\naws_secret_access_key = s\n[other]\naws_access_key_id = o\naws_secret_access_key = s\n")
	for profile, id := range map[string]string{"": "d", "other": "o"} {
		got, err := LoadCredentials(envOf(dir, map[string]string{"AWS_PROFILE": profile})).Retrieve(t.Context())
		if err != nil || got.AccessKeyID != id {
			t.Errorf("profile %q: %+v, %v", profile, got, err)
		}
	}
}

func TestNoCredentialsAreFoundQuickly(t *testing.T) {
	t.Parallel()
	began := time.Now()
	_, err := LoadCredentials(envOf(t.TempDir(), nil)).Retrieve(t.Context())
	if _, ok := errors.AsType[*NoCredentialsError](err); !ok {
		t.Fatalf("%v", err)
	}
	if took := time.Since(began); took > 2*time.Second {
		t.Errorf("took %v", took)
	}
	items := New(Options{Bucket: "b", Endpoint: "http://127.0.0.1:1", Credentials: LoadCredentials(envOf(t.TempDir(), nil))}).Probe(t.Context())
	if items[0].Result != CheckFail || items[0].Hint != hintNoCredentials {
		t.Errorf("%+v", items[0])
	}
	_, err = New(Options{Bucket: "b", Endpoint: "http://127.0.0.1:1", Credentials: LoadCredentials(envOf(t.TempDir(), nil))}).Head(t.Context(), "k")
	if e := asStoreError(t, err); e.Class != "credentials" || e.Hint != hintNoCredentials {
		t.Errorf("%+v", e)
	}
}

func TestCredentialsFollowTheirFiles(t *testing.T) {
	dir := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		c := LoadCredentials(envOf(dir, nil))
		if _, err := c.Retrieve(t.Context()); err == nil {
			t.Fatal("found keys where there are none")
		}
		for _, id := range []string{"first", "second-key"} {
			writeKeys(t, dir, "[default]\naws_access_key_id = "+id+"\naws_secret_access_key = s\n")
			time.Sleep(recheckEvery)
			got, err := c.Retrieve(t.Context())
			if err != nil || got.AccessKeyID != id {
				t.Errorf("%+v, %v", got, err)
			}
		}
	})
}
