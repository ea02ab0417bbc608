package logs

import (
	"bytes"
	"os"
	"path/filepath"
	"testing"

	"pipedeck/remote/internal/smalldisk"
)

// On a full disk a rotation takes no room and loses no line; older generations
// go before their time, and it is made up for when there is room.
func TestRotateOnAFullDisk(t *testing.T) {
	t.Parallel()
	disk := smalldisk.Mount(t, 1<<20)
	path := filepath.Join(disk, "w-0.log")
	text := bytes.Repeat([]byte("a line of the worker\n"), 5000)
	rotateAt := int64(len(text))
	if err := os.WriteFile(path, text, 0o640); err != nil {
		t.Fatal(err)
	}
	if cut, err := Rotate(path, rotateAt, 3); !cut || err != nil {
		t.Fatalf("rotated %t, %v", cut, err)
	}
	if err := os.WriteFile(path, text, 0o640); err != nil {
		t.Fatal(err)
	}
	filler := smalldisk.Fill(t, disk)
	if cut, err := Rotate(path, rotateAt, 3); cut || err != nil {
		t.Errorf("rotated %t, %v", cut, err)
	}
	if got, err := os.ReadFile(path); err != nil || !bytes.Equal(got, text) {
		t.Errorf("%d bytes of the log are left, %v", len(got), err)
	}
	if _, err := os.Stat(RotatedName(path, 0)); !os.IsNotExist(err) {
		t.Errorf("the oldest generation still takes room: %v", err)
	}
	if err := os.Remove(filler); err != nil {
		t.Fatal(err)
	}
	if cut, err := Rotate(path, rotateAt, 3); !cut || err != nil {
		t.Errorf("with room again: rotated %t, %v", cut, err)
	}
	if got, err := os.ReadFile(RotatedName(path, 1)); err != nil || !bytes.Equal(got, text) {
		t.Errorf("the newest generation has %d bytes, %v", len(got), err)
	}
}
