package deck

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"path"
	"slices"

	"pipedeck/pipeline"
	"pipedeck/pipeline/engine"
)

const (
	maxCodeRecord = 16 << 20
	codeChunk     = 1 << 20
)

// checkCode makes sure that the workers run what the plan showed: somebody else
// may have pushed other code since, or edited it here.
func (d *Deck) checkCode(ctx context.Context, j engine.Job) engine.Outcome {
	want := j.Plan.Intent.Code
	if want == nil {
		return failed("the plan names no code")
	}
	rec, err := d.codeRecord()
	if err != nil {
		return asReason(err)
	}
	if rec.Hash != want.Hash {
		return failed("the node has the code %s, pushed by %s at %s, and not %s", pipeline.ShortHash(rec.Hash),
			rec.By, rec.At.Format("15:04:05"), pipeline.ShortHash(want.Hash))
	}
	if why := d.codeDiffers(ctx, rec); why != "" {
		return failed("the code on the node is not what was pushed: %s", why)
	}
	if ctx.Err() != nil {
		return unknown("interrupted")
	}
	if err := d.wants.setCode(rec.Hash); err != nil {
		return asReason(err)
	}
	return verified("%s as planned (code %s)", pipeline.Counted(len(rec.Files), "file is", "files are"), rec.Hash)
}

// lacksCode refuses a plan until its code is here.
func (d *Deck) lacksCode(p pipeline.Plan) error {
	if !slices.ContainsFunc(p.Steps, func(s pipeline.Step) bool { return s.Kind == pipeline.StepCode }) {
		return nil
	}
	rec, err := d.codeRecord()
	if err == nil && rec.Hash == p.Intent.Code.Hash && d.codeDiffers(d.life, rec) == "" {
		return nil
	}
	return &pipeline.Problem{
		Kind: pipeline.ProblemRefused, Plan: &p, Needs: pipeline.NeedsCode, Hint: "apply it from the machine that has the code",
		Text: fmt.Sprintf("cannot %s %q: the code %s of plan %s is not on the node", p.Action, p.Target, pipeline.ShortHash(p.Intent.Code.Hash), p.ID),
	}
}

// codeRecord is what was pushed last; nothing yet is an empty record.
func (d *Deck) codeRecord() (pipeline.CodeRecord, error) {
	var rec pipeline.CodeRecord
	raw, _, err := d.p.Files.ReadFile(path.Join(d.sp.StateDir, pipeline.CodeRecordName), maxCodeRecord)
	if errors.Is(err, fs.ErrNotExist) {
		return rec, nil
	}
	if err == nil {
		err = json.Unmarshal(raw, &rec)
	}
	if err == nil && rec.Hash != pipeline.CodeHash(rec.Files) {
		err = errors.New("its hash is not that of its files")
	}
	if err != nil {
		return rec, fmt.Errorf("cannot read what code was pushed: %w", err)
	}
	return rec, nil
}

// codeDiffers names the first file that is not as it was pushed.
func (d *Deck) codeDiffers(ctx context.Context, rec pipeline.CodeRecord) string {
	for _, f := range rec.Files {
		if ctx.Err() != nil {
			return "interrupted"
		}
		sum, err := d.hashFile(path.Join(d.sp.Workdir, f.To))
		if err != nil {
			return fmt.Sprintf("%s: %v", f.To, err)
		}
		if sum != f.SHA256 {
			return f.To + " changed"
		}
	}
	return ""
}

func (d *Deck) hashFile(name string) (string, error) {
	sum := sha256.New()
	for at := int64(0); ; {
		data, size, _, err := d.p.Files.ReadFrom(name, at, codeChunk)
		if err != nil {
			return "", err
		}
		_, _ = sum.Write(data) // a hash never fails
		at += int64(len(data))
		if len(data) == 0 || at >= size {
			return hex.EncodeToString(sum.Sum(nil)), nil
		}
	}
}
