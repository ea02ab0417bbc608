package local

import (
	"archive/zip"
	"bytes"
	"context"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// memory is a file's bytes, without holes.
type memory struct{ *bytes.Reader }

func (memory) holeAfter(_, size int64) int64 { return size }

func judgeBytes(tb testing.TB, format string, b []byte) Judgement {
	tb.Helper()
	j, err := judge(memory{bytes.NewReader(b)}, format, int64(len(b)))
	if err != nil {
		tb.Fatal(err)
	}
	return j
}

func safetensors(header string, data []byte) []byte {
	b := binary.LittleEndian.AppendUint64(nil, uint64(len(header)))
	return append(append(b, header...), data...)
}

func tensorFile(data []byte) []byte {
	return safetensors(fmt.Sprintf(
		`{"__metadata__":{"format":"pt"},"h":{"dtype":"BF16","shape":[2],"data_offsets":[0,4]},"x":{"dtype":"U8","shape":[1],"data_offsets":[4,%d]}}  `,
		len(data)), data)
}

func zipFile(tb testing.TB, stored ...[]byte) []byte {
	tb.Helper()
	var b bytes.Buffer
	w := zip.NewWriter(&b)
	for i, data := range stored {
		f, err := w.CreateHeader(&zip.FileHeader{Name: fmt.Sprintf("archive/data/%d", i), Method: zip.Store})
		must(tb, err)
		_, err = f.Write(data)
		must(tb, err)
	}
	must(tb, w.Close())
	return b.Bytes()
}

// arrowMessage is a stream message whose flatbuffer has only what is needed:
// vtable (12 bytes) of four fields, bodyLength the fourth, and the table.
func arrowMessage(body []byte) []byte {
	meta := binary.LittleEndian.AppendUint32(nil, 16)
	meta = binary.LittleEndian.AppendUint16(meta, 12)
	meta = binary.LittleEndian.AppendUint16(meta, 16)
	for _, offset := range []uint16{0, 0, 0, 8} {
		meta = binary.LittleEndian.AppendUint16(meta, offset)
	}
	meta = binary.LittleEndian.AppendUint32(meta, 12)
	meta = binary.LittleEndian.AppendUint32(meta, 0)
	meta = binary.LittleEndian.AppendUint64(meta, uint64(len(body)))
	b := []byte{0xFF, 0xFF, 0xFF, 0xFF}
	b = binary.LittleEndian.AppendUint32(b, uint32(len(meta)))
	return append(append(b, meta...), body...)
}

var arrowEnd = []byte{0xFF, 0xFF, 0xFF, 0xFF, 0, 0, 0, 0}

func arrowStream() []byte {
	b := arrowMessage(nil)
	b = append(b, arrowMessage([]byte("body 1  "))...)
	b = append(b, arrowMessage(append(append([]byte{}, arrowEnd...), 1, 2, 3, 4, 5, 6, 7, 8))...)
	return append(b, arrowEnd...)
}

func footerFile(start, magic string) []byte {
	b := append([]byte(start), "some data and a footer"...)
	b = binary.LittleEndian.AppendUint32(b, 6)
	return append(b, magic...)
}

func samples(tb testing.TB) map[string][][]byte {
	return map[string][][]byte{
		FormatSafetensors: {tensorFile([]byte("12345")), tensorFile(make([]byte, 100)), safetensors(`{}`, nil)},
		FormatZip:         {zipFile(tb, []byte("one"), zipFile(tb, []byte("inner")), []byte("three")), zipFile(tb)},
		FormatParquet:     {footerFile("PAR1", "PAR1"), footerFile("PARE", "PARE")},
		FormatArrow:       {arrowStream(), footerFile("ARROW1\x00\x00", "ARROW1")},
		FormatJSONL:       {[]byte("{\"a\":1}\n{\"b\":\"two\\n\"}\n"), []byte("[1]\n\n"), []byte(`{"x":"` + strings.Repeat("y", 40_000) + "\"}\n")},
	}
}

func TestJudgeEveryTruncation(t *testing.T) {
	t.Parallel()
	for format, files := range samples(t) {
		t.Run(format, func(t *testing.T) {
			t.Parallel()
			for i, b := range files {
				if j := judgeBytes(t, format, b); j.Verdict != Complete {
					t.Errorf("sample %d: %+v", i, j)
				}
				for n := range b {
					whole := format == FormatJSONL && n > 0 && b[n-1] == '\n'
					if j := judgeBytes(t, format, b[:n]); (j.Verdict == Complete) != whole {
						t.Fatalf("sample %d cut to %d of %d: %+v", i, n, len(b), j)
					}
					if j := judgeBytes(t, format, b[:n]); j.Verdict != Complete && j.Reason == "" {
						t.Fatalf("sample %d cut to %d: no reason", i, n)
					}
				}
			}
		})
	}
}

func TestJudgeDetails(t *testing.T) {
	t.Parallel()
	page := make([]byte, 3*4096)
	page[0] = 1
	almost := bytes.Clone(page)
	almost[len(almost)-4096] = 1
	cases := []struct {
		name, format string
		data         []byte
		want         Verdict
	}{
		{"zero page at the end", FormatSafetensors, tensorFile(page), AfterSettle},
		{"fewer zeros at the end", FormatSafetensors, tensorFile(almost), Complete},
		{"longer than declared", FormatSafetensors, append(tensorFile([]byte("12345")), 'x'), Incomplete},
		{"header too long", FormatSafetensors, append(binary.LittleEndian.AppendUint64(nil, 1<<40), make([]byte, 99)...), Incomplete},
		{"negative offsets", FormatSafetensors, safetensors(`{"a":{"data_offsets":[-5,0]}}`, nil), Incomplete},
		{"no offsets", FormatSafetensors, safetensors(`{"a":{}}`, nil), Incomplete},
		{"junk after the header", FormatSafetensors, safetensors(`{} {}`, nil), Incomplete},
		{"wrong types", FormatSafetensors, safetensors(`{"a":{"data_offsets":"x"}}`, nil), Incomplete},
		{"null metadata", FormatSafetensors, safetensors(`{"__metadata__":null}`, nil), Complete},
		{"junk before a zip", FormatZip, append([]byte("junk"), zipFile(t, []byte("x"))...), Incomplete},
		{"cut record", FormatJSONL, []byte("{\"a\":1}\n{\"b\"\n"), Incomplete},
		{"only newlines", FormatJSONL, []byte("\n\n"), Incomplete},
		{"binary", FormatJSONL, []byte("\xff\xfe\n"), Incomplete},
		{"footer too long", FormatParquet, append([]byte("PAR1xxxx\xff\xff\xff\x7f"), "PAR1"...), Incomplete},
		{"junk after a stream", FormatArrow, append(arrowStream(), 'x'), Incomplete},
		{"any", FormatAny, []byte("x"), AfterSettle},
		{"no such format", "tar", []byte("x"), Unsupported},
		{"empty", FormatZip, nil, Incomplete},
	}
	for _, c := range cases {
		if j := judgeBytes(t, c.format, c.data); j.Verdict != c.want {
			t.Errorf("%s: %+v, want %s", c.name, j, c.want)
		}
	}
}

// TestJudgeHoles writes as safetensors 0.8.0-rc.0 did: length first, then data.
func TestJudgeHoles(t *testing.T) {
	t.Parallel()
	eachFilesystem(t, func(t *testing.T, dir string) {
		data := bytes.Repeat([]byte("x"), 1<<20)
		whole := tensorFile(data)
		f, err := os.Create(filepath.Join(dir, "a"))
		must(t, err)
		defer f.Close()
		must(t, f.Truncate(int64(len(whole))))
		check := func(want Verdict) {
			t.Helper()
			of, err := Open(dir, "a")
			must(t, err)
			defer of.Close()
			id, err := of.Identity()
			must(t, err)
			if j, err := Judge(of, FormatSafetensors, id); err != nil || j.Verdict != want {
				t.Errorf("%+v %v, want %s", j, err, want)
			}
		}
		check(Incomplete)
		_, err = f.WriteAt(whole[:500_000], 0)
		must(t, err)
		check(AfterSettle)
		// The last page is there, a part before it is not.
		_, err = f.WriteAt(whole[len(whole)-5000:], int64(len(whole)-5000))
		must(t, err)
		check(AfterSettle)
		_, err = f.WriteAt(whole, 0)
		must(t, err)
		check(Complete)
	})
}

func TestJudgeSeesAChange(t *testing.T) {
	t.Parallel()
	root := t.TempDir()
	id := put(t, root, "a", "{}\n")
	must(t, os.WriteFile(filepath.Join(root, "a"), []byte("{}\n{}\n"), 0o644))
	f, err := Open(root, "a")
	must(t, err)
	defer f.Close()
	if j, err := Judge(f, FormatJSONL, id); err != nil || j.Verdict != Incomplete {
		t.Errorf("%+v %v", j, err)
	}
}

func TestJudgeMarker(t *testing.T) {
	t.Parallel()
	root := t.TempDir()
	put(t, root, "step-5/model/a.bin", "x")
	must(t, os.Mkdir(filepath.Join(root, "step-5", "done"), 0o755))
	look := func(dir, marker string) (Verdict, int) {
		j, members, problems, err := JudgeMarker(context.Background(), root, dir, marker)
		must(t, err)
		if len(problems) > 0 {
			t.Fatal(problems)
		}
		return j.Verdict, len(members)
	}
	if v, n := look("step-5", "done"); v != Incomplete || n != 1 {
		t.Error(v, n)
	}
	put(t, root, "step-5/_SUCCESS", "")
	if v, n := look("step-5", "_SUCCESS"); v != Complete || n != 2 {
		t.Error(v, n)
	}
	if v, n := look("step-6", "_SUCCESS"); v != Incomplete || n != 0 {
		t.Error(v, n)
	}
}

func FuzzJudge(f *testing.F) {
	for format, files := range samples(f) {
		for _, b := range files {
			f.Add(format, b)
			f.Add(format, b[:len(b)/2])
		}
	}
	f.Fuzz(func(t *testing.T, format string, b []byte) {
		j := judgeBytes(t, format, b)
		if j.Verdict != Complete {
			if j.Reason == "" {
				t.Fatal("no reason")
			}
			return
		}
		// Whatever is complete can be read as such by an independent reader.
		switch format {
		case FormatSafetensors:
			n := binary.LittleEndian.Uint64(b)
			if !json.Valid(b[8 : 8+n]) {
				t.Fatal("header is no JSON")
			}
		case FormatZip:
			if _, err := zip.NewReader(bytes.NewReader(b), int64(len(b))); err != nil {
				t.Fatal(err)
			}
		case FormatJSONL:
			if !bytes.HasSuffix(b, []byte("\n")) {
				t.Fatal("no newline at the end")
			}
		case FormatArrow, FormatParquet:
			if len(b) < 8 {
				t.Fatal("too short")
			}
		default:
			t.Fatalf("format %q", format)
		}
	})
}

var _ io.ReaderAt = memory{}
