package main

import (
	"github.com/aws/aws-sdk-go-v2/aws"

	"pipedeck/s3/store"
)

// storeOptions are how the spec's bucket is reached.
func storeOptions(s specFile, creds aws.CredentialsProvider) store.Options {
	return store.Options{
		Bucket: s.Store.Bucket, Endpoint: s.Store.Endpoint, Region: s.Store.Region, PathStyle: s.Store.PathStyle,
		Credentials: creds, ScratchPrefix: s.RunPrefix() + ".pipedeck/probe/",
	}
}
