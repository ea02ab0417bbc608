// Package agent is the node's side of the wire: it serves a pipeline.Deck as
// HTTP and JSON on a unix socket, and keeps the process that does so alive.
package agent
