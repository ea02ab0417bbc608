package mover

import (
	"encoding/hex"
	"strings"

	"pipedeck/pipeline"
	"pipedeck/s3/ledger"
)

// likeness says how an object compares with bytes.
type likeness int

// Values of likeness.
const (
	different likeness = iota
	same
	unsure // the ETag tells nothing: only reading back can
)

// compare holds what the store says of an object against a copy's size and
// hash, by what its endpoint's ETags were found to mean.
func compare(p pipeline.StoreProfile, obj pipeline.Object, c *ledger.Copy) likeness {
	if obj.Size != c.Size {
		return different
	}
	parts := strings.Contains(obj.ETag, "-")
	switch {
	case parts && p.MultipartETag && strings.Contains(c.ETag, "-") && partsOf(obj.ETag) == partsOf(c.ETag):
		return likenessOf(obj.ETag == c.ETag)
	case !parts && p.ETagIsMD5 && len(obj.ETag) == 32:
		return likenessOf(strings.EqualFold(obj.ETag, hexMD5(c)))
	}
	return unsure
}

func likenessOf(equal bool) likeness {
	if equal {
		return same
	}
	return different
}

func partsOf(etag string) string {
	_, n, _ := strings.Cut(etag, "-")
	return n
}

func hexMD5(c *ledger.Copy) string { return hex.EncodeToString(c.MD5[:]) }

// claim is what would allow to replace an object.
type claim struct {
	row      *ledger.Row
	dev, ino uint64
	born     int64 // of the inode; 0 where the filesystem does not tell
	// prefix says whether the object's recorded bytes are a prefix of the file
	// now; asked only of growing formats.
	prefix   func(c *ledger.Copy) bool
	growing  bool
	artifact bool
	wrongTag string // that the first verification of our PUT found
}

// mayReplace is invariant 2: an object with other content is replaced only if
// its bytes are provably this file's former ones (a), or our own damaged PUT
// to a key that was absent (b). A file that was removed may have left its inode
// number to another one, so without a time of birth only lines that begin with
// the object's bytes prove anything.
func mayReplace(p pipeline.StoreProfile, obj pipeline.Object, c claim) bool {
	for _, old := range []*ledger.Copy{c.row.Stored, c.row.Put} {
		if old == nil || !holds(p, obj, old, old == c.row.Stored) {
			continue
		}
		if c.artifact {
			return true
		}
		if !old.From(c.dev, c.ino, c.born) {
			continue
		}
		if c.growing && c.prefix(old) || !c.growing && c.born != 0 {
			return true
		}
	}
	return c.row.Phase == ledger.SentNew && c.row.Put.From(c.dev, c.ino, c.born) && c.wrongTag != "" && c.wrongTag == obj.ETag
}

// holds says whether the object is the copy. The ETag that a verified object
// had identifies it even where ETags tell nothing of the bytes.
func holds(p pipeline.StoreProfile, obj pipeline.Object, c *ledger.Copy, verified bool) bool {
	if verified && c.ETag != "" && c.ETag == obj.ETag && c.Size == obj.Size {
		return true
	}
	return compare(p, obj, c) == same
}
