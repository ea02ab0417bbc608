// Package local finds, reads, judges and removes output files on the node's
// own disk. It is the only package that unlinks or renames them; what may be
// removed is decided elsewhere.
package local
