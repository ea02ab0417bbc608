// Package client is the console's side of the wire: a pipeline.Deck over the
// agent's socket, the start of an agent that is not there, and a watcher that
// keeps the newest snapshot with the age of the link.
package client
