package tui

import "golang.org/x/sys/unix"

// dup is dup2, which not every Linux architecture has.
func dup(from, to int) error { return unix.Dup3(from, to, 0) }
