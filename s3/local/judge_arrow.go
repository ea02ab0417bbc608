package local

import "encoding/binary"

// maxArrowMetadata bounds the metadata of one message, in bytes.
const maxArrowMetadata = 64 << 20

// walkArrow follows an Arrow IPC stream: FF FF FF FF, the length of the
// metadata, the metadata (a flatbuffer that tells the length of the body), the
// body; a length of 0 ends the stream, and must end the file.
func walkArrow(f file, size int64) (Judgement, error) {
	var head [8]byte
	for at := int64(0); at+8 <= size; {
		if _, err := f.ReadAt(head[:], at); err != nil {
			return Judgement{}, err
		}
		if binary.LittleEndian.Uint32(head[:]) != 0xFFFFFFFF {
			return incomplete("no message at byte %d", at), nil
		}
		n := int64(binary.LittleEndian.Uint32(head[4:]))
		at += 8
		switch {
		case n == 0 && at == size:
			return complete(), nil
		case n == 0:
			return incomplete("%d bytes after the end marker", size-at), nil
		case n > maxArrowMetadata || n > size-at:
			return incomplete("the message at byte %d is cut", at-8), nil
		}
		meta := make([]byte, n)
		if _, err := f.ReadAt(meta, at); err != nil {
			return Judgement{}, err
		}
		body, ok := arrowBodyLength(meta)
		if !ok || body < 0 || body > size-at-n {
			return incomplete("the message at byte %d is cut or broken", at-8), nil
		}
		at += n + body
	}
	return incomplete("no end marker"), nil
}

// arrowBodyLength reads bodyLength, the fourth field of the flatbuffer table
// Message (org.apache.arrow.flatbuf). A field that is left out is 0.
func arrowBodyLength(meta []byte) (int64, bool) {
	const field = 4 + 3*2 // after the two lengths of a vtable, 2 bytes a field
	at := func(i int64, n int64) bool { return i >= 0 && i+n <= int64(len(meta)) }
	if !at(0, 4) {
		return 0, false
	}
	table := int64(binary.LittleEndian.Uint32(meta))
	if !at(table, 4) {
		return 0, false
	}
	vtable := table - int64(int32(binary.LittleEndian.Uint32(meta[table:])))
	if !at(vtable, 4) {
		return 0, false
	}
	if int64(binary.LittleEndian.Uint16(meta[vtable:])) < field+2 {
		return 0, true
	}
	if !at(vtable+field, 2) {
		return 0, false
	}
	offset := int64(binary.LittleEndian.Uint16(meta[vtable+field:]))
	if offset == 0 {
		return 0, true
	}
	if !at(table+offset, 8) {
		return 0, false
	}
	return int64(binary.LittleEndian.Uint64(meta[table+offset:])), true
}
