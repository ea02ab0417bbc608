package wire

import (
	"encoding/json"
	"errors"
	"os"

	"pipedeck/pipeline"
)

// Refusal is why an agent or its keeper ended for good, for the command that
// started it.
type Refusal struct {
	PID int `json:"pid"` // of the process that refused
	// Held says that another agent has the deck: that may end, and is no
	// reason to give up.
	Held    bool             `json:"held"`
	Problem pipeline.Problem `json:"problem"`
}

// WriteRefusal leaves err at path if trying again cannot help: a Problem of
// usage or one that is refused. Else it does nothing.
func WriteRefusal(path string, err error) error {
	p, ok := errors.AsType[*pipeline.Problem](err)
	if !ok || p.Kind != pipeline.ProblemUsage && p.Kind != pipeline.ProblemRefused || errors.Is(err, ErrLost) {
		return nil // where the lock is lost the directory is another's
	}
	r := Refusal{PID: os.Getpid(), Held: errors.Is(err, ErrHeld), Problem: *p}
	r.Problem.Text = err.Error()
	data, err := json.Marshal(r)
	if err != nil {
		return err
	}
	// Whoever reads it compares the pid, so a torn file is as good as none.
	return os.WriteFile(path, append(data, '\n'), 0o600)
}

// ReadRefusal returns what process pid left at path, nil if it left nothing; a
// pid of 0 takes anybody's.
func ReadRefusal(path string, pid int) *Refusal {
	var r Refusal
	data, err := os.ReadFile(path)
	if err == nil {
		err = json.Unmarshal(data, &r)
	}
	if err == nil && r.Problem.Text != "" && (pid == 0 || r.PID == pid) {
		return &r
	}
	return nil
}
