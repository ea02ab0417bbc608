package main

import (
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"strings"
	"time"

	"pipedeck/pipeline"
)

// farDiffer compares what a console wants to push with what is there.
func farDiffer(h here, req syncRequest) (syncReply, error) {
	root, err := os.OpenRoot(h.s.Workdir)
	if err != nil {
		return syncReply{}, err
	}
	defer func() { _ = root.Close() }()
	reply := syncReply{New: []int{}, Changed: []int{}}
	for i, f := range req.Files {
		sum, mode, err := there(root, f.To)
		switch {
		case errors.Is(err, fs.ErrNotExist):
			reply.New = append(reply.New, i)
		case err != nil:
			return reply, pipeline.Problemf(pipeline.ProblemFailed, "", "cannot sync to %q: %w", f.To, err)
		case sum != f.SHA256 || uint32(mode) != f.Mode:
			reply.Changed = append(reply.Changed, i)
		}
	}
	return reply, nil
}

// there hashes a file below the workdir. A root follows no link out of it.
func there(root *os.Root, name string) (string, fs.FileMode, error) {
	f, err := root.Open(name)
	if err != nil {
		return "", 0, err
	}
	defer func() { _ = f.Close() }()
	st, err := f.Stat()
	if err != nil {
		return "", 0, err
	}
	if !st.Mode().IsRegular() {
		return "", 0, errors.New("it is no file")
	}
	sum := sha256.New()
	_, err = io.Copy(sum, f)
	return hex.EncodeToString(sum.Sum(nil)), st.Mode().Perm(), err
}

// farPutFiles writes the contents that follow a request, each file in one step,
// and leaves a record of all that was synced.
func farPutFiles(h here, req syncRequest, body io.Reader) (int, error) {
	root, err := os.OpenRoot(h.s.Workdir)
	if err != nil {
		return 0, err
	}
	defer func() { _ = root.Close() }()
	for done, i := range req.Push {
		if i < 0 || i >= len(req.Files) {
			return done, fmt.Errorf("cannot sync: file %d of %d is announced", i, len(req.Files))
		}
		f := req.Files[i]
		if strings.HasPrefix(f.To, ".pipedeck") {
			return done, fmt.Errorf("cannot sync to %q: it is pipedeck's own", f.To)
		}
		if err := putFile(root, f, body); err != nil {
			return done, pipeline.Problemf(pipeline.ProblemFailed, "", "cannot sync to %q: %w", f.To, err)
		}
	}
	record, err := json.Marshal(pipeline.CodeRecord{Hash: req.Hash, Files: req.Files, By: req.By, At: time.Now().UTC()})
	if err != nil {
		return len(req.Push), err
	}
	return len(req.Push), writeFile(filepath.Join(h.s.StateDir, pipeline.CodeRecordName), append(record, '\n'))
}

// putFile writes beside its target and takes its place only if it is whole.
func putFile(root *os.Root, f pipeline.CodeFile, body io.Reader) error {
	dir := path.Dir(f.To)
	if err := root.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	part := path.Join(dir, ".pipedeck-sync-"+rand.Text()+".tmp")
	out, err := root.OpenFile(part, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	sum := sha256.New()
	_, err = io.CopyN(io.MultiWriter(out, sum), body, f.Size)
	if got := hex.EncodeToString(sum.Sum(nil)); err == nil && got != f.SHA256 {
		err = fmt.Errorf("it changed while it was read: %s became %s", f.SHA256, got)
	}
	err = errors.Join(err, out.Chmod(fs.FileMode(f.Mode).Perm()), out.Sync(), out.Close())
	if err == nil {
		err = root.Rename(part, f.To)
	}
	if err != nil {
		return errors.Join(err, root.Remove(part))
	}
	return nil
}
