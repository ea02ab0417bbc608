package agent

import (
	"bufio"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"io"
	"os"
	"strconv"
	"sync"
	"syscall"

	"pipedeck/remote/agent/wire"
)

// CredentialTaker holds credentials that clients hand over.
type CredentialTaker interface {
	Take(c wire.Credentials)
	State() wire.CredentialState
}

// ownHash is the SHA-256 of the program that runs, also after its file was
// replaced or removed; "" if it cannot be read.
var ownHash = sync.OnceValue(func() string {
	f, err := os.Open("/proc/self/exe")
	if err != nil {
		return ""
	}
	defer func() { _ = f.Close() }()
	sum := sha256.New()
	if _, err := io.Copy(sum, f); err != nil {
		return ""
	}
	return hex.EncodeToString(sum.Sum(nil))
})

// vaultEnv names the descriptor that connects an agent with its keeper, which
// remembers forwarded credentials for the next agent.
const vaultEnv = "PIPEDECK_VAULT"

// Vault is the agent's end of that connection.
type Vault struct {
	mu   sync.Mutex
	file *os.File
}

// TakeVault returns the vault of this process, nil if no keeper gave it one,
// and takes it out of the environment and out of what children inherit.
func TakeVault() *Vault {
	fd, err := strconv.Atoi(os.Getenv(vaultEnv))
	_ = os.Unsetenv(vaultEnv) // fails for bad names only
	if err != nil || fd < 3 {
		return nil
	}
	syscall.CloseOnExec(fd)
	return &Vault{file: os.NewFile(uintptr(fd), "vault")}
}

// Load waits for what the keeper remembers: the zero value if that is nothing.
func (v *Vault) Load() wire.Credentials {
	var c wire.Credentials
	if v == nil {
		return c
	}
	line, err := bufio.NewReaderSize(v.file, 64<<10).ReadBytes('\n')
	if err != nil || json.Unmarshal(line, &c) != nil {
		return wire.Credentials{}
	}
	return c
}

// Store has the keeper remember c. A keeper that is gone remembers nothing.
func (v *Vault) Store(c wire.Credentials) {
	if v == nil {
		return
	}
	line, err := json.Marshal(c)
	if err != nil {
		return
	}
	v.mu.Lock()
	defer v.mu.Unlock()
	_, _ = v.file.Write(append(line, '\n'))
}

// memory is what a keeper remembers between two agents.
type memory struct {
	mu    sync.Mutex
	creds wire.Credentials
}

// connect makes the two ends for one agent. The keeper's end gives what is
// remembered and then listens until the agent is gone.
func (m *memory) connect() (theirs *os.File, err error) {
	pair, err := syscall.Socketpair(syscall.AF_UNIX, syscall.SOCK_STREAM, 0)
	if err != nil {
		return nil, err
	}
	// A keeper starts nothing else meanwhile that could inherit them.
	syscall.CloseOnExec(pair[0])
	syscall.CloseOnExec(pair[1])
	ours := os.NewFile(uintptr(pair[0]), "vault")
	go m.attend(ours)
	return os.NewFile(uintptr(pair[1]), "vault"), nil
}

func (m *memory) attend(conn *os.File) {
	defer func() { _ = conn.Close() }()
	m.mu.Lock()
	line, err := json.Marshal(m.creds)
	m.mu.Unlock()
	if err != nil {
		return
	}
	if _, err := conn.Write(append(line, '\n')); err != nil {
		return
	}
	lines := bufio.NewReaderSize(conn, 64<<10)
	for {
		line, err := lines.ReadBytes('\n')
		if err != nil {
			return
		}
		var c wire.Credentials
		if json.Unmarshal(line, &c) == nil {
			m.mu.Lock()
			m.creds = c
			m.mu.Unlock()
		}
	}
}
