//go:build unix && !linux

package tui

import "golang.org/x/sys/unix"

func dup(from, to int) error { return unix.Dup2(from, to) }
