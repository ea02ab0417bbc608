package agent

import "testing"

func TestNetworkMagicNamesWhatLocksDoNotWorkOn(t *testing.T) {
	t.Parallel()
	for magic, want := range map[uint32]string{
		0x6969: "nfs", 0xff534d42: "smb", 0xfe534d42: "smb", 0x00c36400: "ceph", 0x0bd00bd0: "lustre", 0x01021997: "9p",
		0xef53: "", 0x58465342: "", 0x01021994: "", 0x794c7630: "", 0x9123683e: "", 0x2fc12fc1: "",
	} {
		if got := networkMagic(magic); got != want {
			t.Errorf("magic %#x is %q, want %q", magic, got, want)
		}
	}
}

func TestFuseKindComesFromTheInnermostMount(t *testing.T) {
	t.Parallel()
	const table = `22 1 8:1 / / rw - ext4 /dev/sda1 rw
30 22 0:40 / /mnt/far rw shared:1 - fuse.sshfs user@host:/ rw
31 30 8:2 / /mnt/far/near rw - fuseblk /dev/sdb1 rw
32 22 0:41 / /mnt/a\040b rw - fuse.gcsfuse bucket rw
33 22 0:42 / /mnt/over rw - fuse.fuse-overlayfs fuse-overlayfs rw
`
	for dir, want := range map[string]string{
		"/mnt/far/x": "fuse.sshfs", "/mnt/far/near/x": "", "/mnt/a b": "fuse.gcsfuse",
		"/mnt/over/x": "", "/mnt/farther": "ext4",
	} {
		if got := fuseKindIn(table, dir); got != want {
			t.Errorf("%q is on %q, want %q", dir, got, want)
		}
	}
	if got := fuseKindIn("", "/x"); got != "fuse" {
		t.Errorf("an unknown mount is %q, want fuse", got)
	}
}

func TestCheckStateDirTakesALocalDiskThatIsYetToBeMade(t *testing.T) {
	t.Parallel()
	if err := CheckStateDir(t.TempDir() + "/not/yet"); err != nil {
		t.Error(err)
	}
}
