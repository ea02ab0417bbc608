package local

import (
	"context"
	"crypto/md5"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"hash/crc32"
	"strconv"
)

// Sums are the hashes of some bytes.
type Sums struct {
	MD5    [16]byte
	CRC32C uint32
	SHA256 [32]byte // zero unless asked for
	Size   int64    // bytes
}

// hashChunk bytes go through every hash before the next, while they are in
// the CPU's cache.
const hashChunk = 64 << 10

// HashBuffer hashes b in one pass. SHA-256 costs as much as the rest and is
// left zero unless asked for.
func HashBuffer(b []byte, withSHA256 bool) Sums {
	s := Sums{Size: int64(len(b))}
	table := crc32.MakeTable(crc32.Castagnoli)
	m, sha := md5.New(), sha256.New()
	for len(b) > 0 {
		chunk := b[:min(len(b), hashChunk)]
		b = b[len(chunk):]
		m.Write(chunk)
		s.CRC32C = crc32.Update(s.CRC32C, table, chunk)
		if withSHA256 {
			sha.Write(chunk)
		}
	}
	m.Sum(s.MD5[:0])
	if withSHA256 {
		sha.Sum(s.SHA256[:0])
	}
	return s
}

// FileSums are the hashes of a file, whole and by part.
type FileSums struct {
	Sums
	Parts []Sums // SHA256 unset
	ETag  string // of a multipart upload with these parts: hex of MD5 over the parts' MD5s, "-", their number
}

// HashFile reads size bytes of f once, with a buffer of at most 1 MiB, and
// hashes them whole and in parts of partSize bytes. The caller compares the
// identity before and after. A shorter file is io.ErrUnexpectedEOF.
func HashFile(ctx context.Context, f *File, size, partSize int64) (FileSums, error) {
	if partSize <= 0 {
		return FileSums{}, fmt.Errorf("cannot hash %q: part size %d", f.name, partSize)
	}
	table := crc32.MakeTable(crc32.Castagnoli)
	whole, part := md5.New(), md5.New()
	out := FileSums{Sums: Sums{Size: size}}
	buf := make([]byte, min(1<<20, max(size, 1)))
	var off int64
	for off < size {
		cur := Sums{Size: min(partSize, size-off)}
		part.Reset()
		for end := off + cur.Size; off < end; {
			if err := ctx.Err(); err != nil {
				return FileSums{}, err
			}
			b := buf[:min(int64(len(buf)), end-off)]
			if _, err := f.ReadAt(b, off); err != nil {
				return FileSums{}, cutShort(f.name, err)
			}
			whole.Write(b)
			part.Write(b)
			cur.CRC32C = crc32.Update(cur.CRC32C, table, b)
			out.CRC32C = crc32.Update(out.CRC32C, table, b)
			off += int64(len(b))
		}
		part.Sum(cur.MD5[:0])
		out.Parts = append(out.Parts, cur)
	}
	whole.Sum(out.MD5[:0])
	out.ETag = MultipartETag(out.Parts)
	return out, nil
}

// MultipartETag is the ETag that S3 gives to an upload in these parts.
func MultipartETag(parts []Sums) string {
	h := md5.New()
	for _, p := range parts {
		h.Write(p.MD5[:])
	}
	return hex.EncodeToString(h.Sum(nil)) + "-" + strconv.Itoa(len(parts))
}
