package main

import (
	"errors"
	"fmt"
	"io"

	"github.com/charmbracelet/x/term"
)

// terminalPrompt asks the operator before the console starts.
type terminalPrompt struct {
	in  io.Reader
	out io.Writer
	a   *app // has the terminal's lock: several nodes may ask
}

var errShut = errors.New("the console has the terminal: leave it and open it again to be asked")

// begin waits for the terminal and shows a question.
func (p terminalPrompt) begin(question string) error {
	p.a.asking.Lock()
	if p.a.shut.Load() {
		return errShut
	}
	_, err := fmt.Fprint(p.out, question)
	return err
}

// Ask implements ssh.Prompt.
func (p terminalPrompt) Ask(question string) (string, error) {
	defer p.a.asking.Unlock()
	if err := p.begin(question); err != nil {
		return "", err
	}
	return readLine(p.in)
}

// Secret implements ssh.Prompt.
func (p terminalPrompt) Secret(question string) (string, error) {
	f := inFile(p.in)
	if f == nil {
		return "", errors.New("no terminal")
	}
	defer p.a.asking.Unlock()
	if err := p.begin(question); err != nil {
		return "", err
	}
	secret, err := term.ReadPassword(f.Fd())
	_, _ = fmt.Fprintln(p.out) // Enter was not echoed
	return string(secret), err
}

// readLine reads no byte more than the line: what follows is another's.
func readLine(r io.Reader) (string, error) {
	var line []byte
	one := make([]byte, 1)
	for {
		n, err := r.Read(one)
		switch {
		case n == 1 && one[0] == '\n':
			return string(line), nil
		case n == 1:
			line = append(line, one[0])
		case err != nil:
			return "", err
		}
	}
}
