package local

import (
	"errors"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"
)

// Room is disk that is held for what an operator asks for: on a full disk a
// wipe has to be able to list what it takes. Uploads never use it, so it is
// there when they have used up the reserve.
type Room struct{ Path string }

const (
	roomMost  = 2 << 20
	roomLeast = 64 << 10
	roomShare = 32 // of a small disk
	// roomFree is how many times its size must be free before it is taken.
	roomFree = 4
)

// RoomIn is the room of a state directory.
func RoomIn(stateDir string) Room { return Room{Path: filepath.Join(stateDir, "room")} }

// Hold takes the room, if it is not held and the disk has plenty.
func (r Room) Hold() {
	free, total, err := Space(filepath.Dir(r.Path))
	if err != nil {
		return
	}
	size := min(roomMost, total/roomShare)
	if info, err := os.Lstat(r.Path); err == nil && info.Size() >= size {
		return
	}
	if free >= roomFree*size {
		_ = Reserve(r.Path, size) // the next look tries again
	}
}

// Spend does a write. If the disk is full it gives the room up, writes again,
// and takes back at once what that left of it.
func (r Room) Spend(write func() error) error {
	err := write()
	if !IsFull(err) {
		return err
	}
	return r.Again(err, write)
}

// Again does a write that failed for want of room, as Spend does.
func (r Room) Again(err error, write func() error) error {
	info, statErr := os.Lstat(r.Path)
	if r.Path == "" || statErr != nil || ReleaseReserve(r.Path) != nil {
		return err
	}
	err = write()
	for size := info.Size(); size >= roomLeast; size /= 2 {
		if Reserve(r.Path, size) == nil {
			break
		}
	}
	return err
}

// IsFull says that a system call had no room on the disk.
func IsFull(err error) bool { return errors.Is(err, unix.ENOSPC) || errors.Is(err, unix.EDQUOT) }
