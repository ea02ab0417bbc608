package local

import (
	"context"
	"errors"
	"fmt"
	"io"
	"path/filepath"
)

// Verdict says whether a file is complete.
type Verdict string

// Values of Verdict.
const (
	Complete    Verdict = "complete"     // its format says so
	Incomplete  Verdict = "incomplete"   // still being written, or broken
	AfterSettle Verdict = "after_settle" // complete once unchanged and unopened for the output's settle time
	Unsupported Verdict = "unsupported"  // no such format
)

// Judgement is a verdict and why; Reason is empty for a plain Complete.
type Judgement struct {
	Verdict Verdict
	Reason  string
}

// Formats of Judge. FormatMarker is for JudgeMarker.
const (
	FormatSafetensors = "safetensors"
	FormatZip         = "zip"
	FormatJSONL       = "jsonl"
	FormatParquet     = "parquet"
	FormatArrow       = "arrow"
	FormatAny         = "any"
	FormatMarker      = "marker"
)

func complete() Judgement { return Judgement{Verdict: Complete} }

func incomplete(format string, args ...any) Judgement {
	return Judgement{Verdict: Incomplete, Reason: fmt.Sprintf(format, args...)}
}

func afterSettle(reason string) Judgement { return Judgement{Verdict: AfterSettle, Reason: reason} }

// Judge says whether f, which id describes, is complete by its format. For
// jsonl Complete means: so far, it ends with a whole record. A file that
// changed meanwhile is Incomplete. The error is one of reading.
func Judge(f *File, format string, id Identity) (Judgement, error) {
	j, err := judge(f, format, id.Size)
	if err != nil {
		return Judgement{}, err
	}
	now, err := f.Identity()
	if err != nil {
		return Judgement{}, err
	}
	if !now.Same(id) {
		return incomplete("changed while it was looked at: %s", difference(id, now)), nil
	}
	return j, nil
}

// file is what the formats are judged by.
type file interface {
	io.ReaderAt
	// holeAfter returns the offset of the first hole at or after from, or the
	// size if there is none.
	holeAfter(from, size int64) int64
}

func judge(f file, format string, size int64) (Judgement, error) {
	if format == FormatAny {
		return afterSettle("the format does not tell"), nil
	}
	judges := map[string]func(file, int64) (Judgement, error){
		FormatSafetensors: judgeSafetensors,
		FormatZip:         judgeZip,
		FormatJSONL:       judgeJSONL,
		FormatParquet:     judgeParquet,
		FormatArrow:       judgeArrow,
	}
	by, ok := judges[format]
	if !ok {
		return Judgement{Verdict: Unsupported, Reason: fmt.Sprintf("format %q", format)}, nil
	}
	if size == 0 {
		return incomplete("empty"), nil
	}
	j, err := by(f, size)
	if isEOF(err) {
		return incomplete("became shorter while it was looked at"), nil
	}
	return j, err
}

// holeAfter asks the filesystem for a hole, and where it cannot tell compares
// the blocks in use with the size, with some slack for a cut last block.
func (f *File) holeAfter(from, size int64) int64 {
	const slack = 64 << 10
	if hole, err := firstHole(f.fd, from); err == nil {
		return hole
	}
	if e, err := f.Entry(); err == nil && e.Blocks*512 < size-slack {
		return from
	}
	return size
}

// JudgeMarker says whether the directory relDir below root is complete, which
// is when a regular file called marker is in it, and lists its files with Rel
// below root, the marker among them. A directory that vanished is Incomplete;
// what could not be read is in Problems, and the list then not all.
func JudgeMarker(ctx context.Context, root, relDir, marker string) (Judgement, []Entry, Problems, error) {
	if _, _, err := splitRel(relDir); err != nil {
		return Judgement{}, nil, nil, err
	}
	j := incomplete("no marker %q", marker)
	var members []Entry
	problems, err := Scan(ctx, filepath.Join(root, relDir), nil, func(e Entry) {
		if e.Kind == KindDir {
			return
		}
		if e.Rel == marker && e.Kind == KindRegular {
			j = complete()
		}
		e.Rel = joinRel(relDir, e.Rel)
		members = append(members, e)
	})
	for i := range problems {
		problems[i].Path = joinRel(relDir, problems[i].Path)
	}
	if errors.Is(err, ErrNoDir) {
		return incomplete("the directory is gone"), nil, nil, nil
	}
	return j, members, problems, err
}
