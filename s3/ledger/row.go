package ledger

// Phase is how far the newest PUT of a file came.
type Phase int

// Values of Phase.
const (
	NoPut Phase = iota
	// Intended: the PUT was about to begin; whether its bytes arrived is open.
	Intended
	// Sent: the endpoint answered that the bytes arrived.
	Sent
	// SentNew: as Sent, and the key was absent when the PUT began.
	SentNew
	// Claimed: a manifest in the bucket names the bytes; the object was not
	// seen yet.
	Claimed
)

// Copy is the bytes of one file at one moment.
type Copy struct {
	Size   int64
	MD5    [16]byte
	CRC32C uint32
	ETag   string // of an object with these bytes, without quotes; "" unknown
	// Identity of the file that was read. All zero: not known, for example of a
	// row found in the bucket.
	Dev, Ino uint64
	MTimeNS  int64
	CTimeNS  int64
	Born     int64 // when the inode was made; 0 where the filesystem does not tell
}

// From says whether the copy was read from the file (dev, ino, born). Inode
// numbers are given out again, so the time of birth must agree too.
func (c *Copy) From(dev, ino uint64, born int64) bool {
	return c != nil && c.Ino != 0 && c.Dev == dev && c.Ino == ino && c.Born == born
}

// Row is what is known of one object of the run.
type Row struct {
	Output   string // "stage/output"
	Key      string // below the run's prefix, raw bytes
	Sample   string // sample id, "" without one
	Manifest int64  // that holds Stored; 0 none
	Stored   *Copy  // verified in the store; nil: not yet
	Phase    Phase
	Put      *Copy // the newest PUT, nil with NoPut
}

// Count sums rows that are stored.
type Count struct {
	Files, Bytes int64
	IDs          int64 // distinct sample ids; files where there are none
}
