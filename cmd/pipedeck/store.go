package main

import (
	"pipedeck/s3/store"
)

// storeOptions are how the spec's bucket is reached.
func storeOptions(s specFile, creds *store.Chain) store.Options {
	return store.Options{
		Bucket: s.Store.Bucket, Endpoint: s.Store.Endpoint, Region: s.Store.Region, PathStyle: s.Store.PathStyle,
		Credentials: creds, ScratchPrefix: s.RunPrefix() + ".pipedeck/probe/",
	}
}
