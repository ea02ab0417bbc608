package store

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/config"
	"github.com/aws/aws-sdk-go-v2/feature/ec2/imds"
)

// NoCredentialsError says that the AWS default chain holds no usable keys, or,
// with a hint of its own, that another source has none.
type NoCredentialsError struct {
	Err  error
	Hint string
}

// Error names the places that were looked at.
func (e *NoCredentialsError) Error() string {
	if e.Hint != "" {
		return e.Err.Error()
	}
	return fmt.Sprintf("no credentials in environment, profile or config files: %v", e.Err)
}

// Unwrap returns the source's own error.
func (e *NoCredentialsError) Unwrap() error { return e.Err }

// Limits of one look through the chain: a metadata service that does not
// exist must not keep the operator waiting, a credential process may.
const (
	chainTimeout    = 30 * time.Second
	metadataTimeout = 2 * time.Second
	recheckEvery    = time.Second // how often changed files are looked for
)

// Chain is the AWS default chain (environment, profile, config files), looked
// at on the first request and again when its files change or its keys expire.
type Chain struct {
	env func(string) string

	mu      sync.Mutex
	creds   aws.Credentials
	stamp   string
	checked time.Time
}

// LoadCredentials returns the chain; env defaults to os.Getenv. It reads
// nothing yet, so a command that asks the store nothing pays nothing.
func LoadCredentials(env func(string) string) *Chain {
	if env == nil {
		env = os.Getenv
	}
	return &Chain{env: env}
}

// Retrieve returns the current keys, or a *NoCredentialsError.
func (c *Chain) Retrieve(ctx context.Context) (aws.Credentials, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.creds.HasKeys() && !c.creds.Expired() && time.Since(c.checked) < recheckEvery {
		return c.creds, nil
	}
	stamp := c.fileStamp()
	c.checked = time.Now()
	if c.creds.HasKeys() && !c.creds.Expired() && stamp == c.stamp {
		return c.creds, nil
	}
	creds, err := c.load(ctx)
	if err != nil {
		c.creds = aws.Credentials{}
		if ctx.Err() != nil {
			return aws.Credentials{}, ctx.Err()
		}
		return aws.Credentials{}, &NoCredentialsError{Err: err}
	}
	c.creds, c.stamp = creds, stamp
	return creds, nil
}

func (c *Chain) load(ctx context.Context) (aws.Credentials, error) {
	if id, secret := c.env("AWS_ACCESS_KEY_ID"), c.env("AWS_SECRET_ACCESS_KEY"); id != "" && secret != "" {
		return aws.Credentials{
			AccessKeyID: id, SecretAccessKey: secret, SessionToken: c.env("AWS_SESSION_TOKEN"), Source: "environment",
		}, nil
	}
	timeout, metadata := chainTimeout, imds.ClientDisabled
	if c.env("AWS_EC2_METADATA_DISABLED") == "false" {
		timeout, metadata = metadataTimeout, imds.ClientEnabled
	}
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	conf, creds := c.files()
	cfg, err := config.LoadDefaultConfig(ctx,
		config.WithSharedConfigProfile(c.env("AWS_PROFILE")),
		config.WithSharedConfigFiles([]string{conf}),
		config.WithSharedCredentialsFiles([]string{creds}),
		config.WithEC2IMDSClientEnableState(metadata),
	)
	if err != nil {
		return aws.Credentials{}, err
	}
	got, err := cfg.Credentials.Retrieve(ctx)
	if err != nil && metadata == imds.ClientDisabled && errors.Is(ctx.Err(), nil) && c.env("AWS_PROFILE") == "" {
		// The SDK ends its chain at the metadata service, which was never asked:
		// its word for that would hide what is missing.
		return aws.Credentials{}, errors.New("none of them has keys")
	}
	if err != nil {
		return aws.Credentials{}, err
	}
	// The SDK reads this process's environment too; only c.env counts.
	if !got.HasKeys() || got.Source == config.CredentialsSourceName {
		return aws.Credentials{}, errors.New("no provider has keys")
	}
	return got, nil
}

func (c *Chain) files() (conf, creds string) {
	home := c.env("HOME")
	if home == "" {
		home, _ = os.UserHomeDir()
	}
	conf, creds = c.env("AWS_CONFIG_FILE"), c.env("AWS_SHARED_CREDENTIALS_FILE")
	if conf == "" {
		conf = filepath.Join(home, ".aws", "config")
	}
	if creds == "" {
		creds = filepath.Join(home, ".aws", "credentials")
	}
	return conf, creds
}

// fileStamp changes when one of the chain's files does.
func (c *Chain) fileStamp() string {
	conf, creds := c.files()
	var stamp strings.Builder
	for _, path := range []string{conf, creds} {
		if fi, err := os.Stat(path); err == nil {
			fmt.Fprintf(&stamp, "%s %d %d\n", path, fi.Size(), fi.ModTime().UnixNano())
		}
	}
	return stamp.String()
}
