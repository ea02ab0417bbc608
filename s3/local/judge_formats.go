package local

import (
	"archive/zip"
	"bytes"
	"encoding/binary"
	"encoding/json"
	"errors"
	"io"
)

// isEOF says that a read ran past the end of the file.
func isEOF(err error) bool { return errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) }

// zeroTail is the length of an all-zero end that makes a safetensors file
// doubtful: one page, as a writer leaves it that sets the length first.
const zeroTail = 4096

// maxSafetensorsHeader is the format's own limit, in bytes.
const maxSafetensorsHeader = 100_000_000

// judgeSafetensors follows the format: 8 bytes of header length, the header in
// JSON, then the data, whose largest offset must be the end of the file. That
// proves a file written front to back; one whose length was set first shows
// by a hole or by a last page of zeros.
func judgeSafetensors(f file, size int64) (Judgement, error) {
	var head [8]byte
	if size < 8 {
		return incomplete("%d bytes hold no header length", size), nil
	}
	if _, err := f.ReadAt(head[:], 0); err != nil {
		return Judgement{}, err
	}
	n := binary.LittleEndian.Uint64(head[:])
	if n < 2 || n > maxSafetensorsHeader {
		return incomplete("header length %d", n), nil
	}
	data := 8 + int64(n)
	if data > size {
		return incomplete("the header needs %d bytes of %d", data, size), nil
	}
	dataLen, err := safetensorsEnd(io.NewSectionReader(f, 8, int64(n)))
	switch {
	case err != nil && !errors.Is(err, errHeader) && !isEOF(err) && !isSyntax(err):
		return Judgement{}, err
	case err != nil:
		return incomplete("header: %v", err), nil
	case dataLen != size-data:
		return incomplete("the header declares %d bytes of data, there are %d", dataLen, size-data), nil
	}
	if hole := f.holeAfter(data, size); dataLen > 0 && hole < size {
		return afterSettle("a hole in the data"), nil
	}
	return judgeTail(f, data, size)
}

// judgeTail doubts data that ends in a page of zeros.
func judgeTail(f file, data, size int64) (Judgement, error) {
	if size-data < zeroTail {
		return complete(), nil
	}
	tail := make([]byte, zeroTail)
	if _, err := f.ReadAt(tail, size-zeroTail); err != nil {
		return Judgement{}, err
	}
	if len(bytes.Trim(tail, "\x00")) == 0 {
		return afterSettle("the last 4 KiB are zero"), nil
	}
	return complete(), nil
}

var errHeader = errors.New("not a JSON object of tensors")

func isSyntax(err error) bool {
	var syntax *json.SyntaxError
	var wrong *json.UnmarshalTypeError
	return errors.As(err, &syntax) || errors.As(err, &wrong)
}

// safetensorsEnd reads a header tensor by tensor, so that a large one costs no
// memory, and returns the largest data offset.
func safetensorsEnd(r io.Reader) (int64, error) {
	dec := json.NewDecoder(r)
	if tok, err := dec.Token(); err != nil || tok != json.Delim('{') {
		return 0, errors.Join(errHeader, err)
	}
	var end int64
	for dec.More() {
		key, err := dec.Token()
		if err != nil {
			return 0, err
		}
		if key == "__metadata__" {
			var skipped json.RawMessage
			if err := dec.Decode(&skipped); err != nil {
				return 0, err
			}
			continue
		}
		var tensor struct {
			Offsets []int64 `json:"data_offsets"`
		}
		if err := dec.Decode(&tensor); err != nil {
			return 0, err
		}
		o := tensor.Offsets
		if len(o) != 2 || o[0] < 0 || o[0] > o[1] {
			return 0, errHeader
		}
		end = max(end, o[1])
	}
	if _, err := dec.Token(); err != nil {
		return 0, err
	}
	// Only padding may follow.
	if _, err := dec.Token(); !errors.Is(err, io.EOF) {
		return 0, errors.Join(errHeader, err)
	}
	return end, nil
}

const (
	zipLocalHeaderLen = 30
	zipDirectoryEnd   = 22
)

// judgeZip wants the directory at the end, where it is written last, to be
// whole and to begin with the file's first bytes: a cut file can end in a
// whole zip that was stored inside it.
func judgeZip(f file, size int64) (Judgement, error) {
	// The section answers offsets outside the file, which a broken directory may hold, with EOF.
	r, err := zip.NewReader(io.NewSectionReader(f, 0, size), size)
	switch {
	case errors.Is(err, zip.ErrFormat), errors.Is(err, zip.ErrAlgorithm), isEOF(err):
		return incomplete("no directory at the end"), nil
	case err != nil && !errors.Is(err, zip.ErrInsecurePath):
		return Judgement{}, err
	case len(r.File) == 0:
		if size == zipDirectoryEnd+int64(len(r.Comment)) {
			return complete(), nil
		}
		return incomplete("an empty directory at the end"), nil
	}
	var head [zipLocalHeaderLen]byte
	if _, err := f.ReadAt(head[:], 0); err != nil {
		return Judgement{}, err
	}
	if !bytes.HasPrefix(head[:], []byte("PK\x03\x04")) {
		return incomplete("no zip header at the start"), nil
	}
	first := int64(zipLocalHeaderLen) + int64(binary.LittleEndian.Uint16(head[26:])) + int64(binary.LittleEndian.Uint16(head[28:]))
	for _, entry := range r.File {
		at, err := entry.DataOffset()
		if err == nil && at == first {
			return complete(), nil
		}
		if err != nil && !errors.Is(err, zip.ErrFormat) && !isEOF(err) {
			return Judgement{}, err
		}
	}
	return incomplete("the directory at the end is of another zip inside"), nil
}

// maxJSONLine bounds the memory for one record, in bytes.
const maxJSONLine = 64 << 20

// judgeJSONL wants the file to end with a newline and the last line before it
// that is not blank to be JSON.
func judgeJSONL(f file, size int64) (Judgement, error) {
	line, err := lastLine(f, size)
	switch {
	case err != nil:
		return Judgement{}, err
	case line == nil:
		return incomplete("the last line has no end"), nil
	case len(line) > maxJSONLine:
		return afterSettle("the last line is too long to check"), nil
	case !json.Valid(line):
		return incomplete("the last line is no JSON"), nil
	default:
		return complete(), nil
	}
}

// lastLine reads backwards for the last line that is not blank, without its
// newline; nil if the file does not end with one, and a line longer than
// maxJSONLine if there is one.
func lastLine(f file, size int64) ([]byte, error) {
	var tail []byte
	for chunk := int64(8 << 10); ; chunk *= 4 {
		from := max(0, size-chunk)
		tail = make([]byte, size-from)
		if _, err := f.ReadAt(tail, from); err != nil {
			return nil, err
		}
		if tail[len(tail)-1] != '\n' {
			return nil, nil
		}
		line := bytes.TrimRight(tail, " \t\r\n")
		if i := bytes.LastIndexByte(line, '\n'); i >= 0 {
			return line[i+1:], nil
		}
		if from == 0 || chunk > maxJSONLine {
			return line, nil
		}
	}
}

// judgeParquet wants the magic at both ends and a footer that fits between.
// PARE marks an encrypted footer.
func judgeParquet(f file, size int64) (Judgement, error) {
	if size < 12 {
		return incomplete("%d bytes hold no footer", size), nil
	}
	var head [4]byte
	var tail [8]byte
	if _, err := f.ReadAt(head[:], 0); err != nil {
		return Judgement{}, err
	}
	if _, err := f.ReadAt(tail[:], size-int64(len(tail))); err != nil {
		return Judgement{}, err
	}
	magic := string(tail[4:])
	footer := int64(binary.LittleEndian.Uint32(tail[:]))
	switch {
	case magic != "PAR1" && magic != "PARE":
		return incomplete("no magic at the end"), nil
	case string(head[:]) != magic:
		return incomplete("no magic at the start"), nil
	case footer == 0 || footer > size-12:
		return incomplete("footer length %d in %d bytes", footer, size), nil
	}
	return complete(), nil
}

// judgeArrow knows both IPC forms: the file, with its magic at both ends, and
// the stream, whose messages are walked to the end marker, since the marker's
// eight bytes can also be data.
func judgeArrow(f file, size int64) (Judgement, error) {
	if size < 8 {
		return incomplete("%d bytes hold no message", size), nil
	}
	var head [8]byte
	var tail [10]byte
	if _, err := f.ReadAt(head[:], 0); err != nil {
		return Judgement{}, err
	}
	if string(head[:6]) != "ARROW1" {
		return walkArrow(f, size)
	}
	if size < 18 {
		return incomplete("%d bytes hold no footer", size), nil
	}
	if _, err := f.ReadAt(tail[:], size-int64(len(tail))); err != nil {
		return Judgement{}, err
	}
	footer := int64(binary.LittleEndian.Uint32(tail[:]))
	switch {
	case string(tail[4:]) != "ARROW1":
		return incomplete("no magic at the end"), nil
	case footer == 0 || footer > size-18:
		return incomplete("footer length %d in %d bytes", footer, size), nil
	}
	return complete(), nil
}
