package store

import "pipedeck/pipeline"

// NewProbed is a client that believes its endpoint to be like AWS.
func NewProbed(o Options) *Client {
	c := New(o)
	c.profile.Store(&pipeline.StoreProfile{ChecksumHeader: true})
	return c
}
