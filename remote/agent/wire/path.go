package wire

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"os"
	"path/filepath"
)

// maxSocketPath is how long the plain path may be, in bytes. The kernel takes
// 107 on Linux and 103 on a Mac; tunnels append a little.
const maxSocketPath = 100

// SocketPath returns the agent's socket for an absolute state directory:
// STATE/agent.sock, or, where the kernel would not take a path that long, a
// short one named after a hash of it in /run (root) or /tmp.
//
// Agent and client each compute it, perhaps from different logins, so it
// depends on nothing but the path and the directory's owner. XDG_RUNTIME_DIR is
// not used: it is unset in an ssh command or a cron job, and it is deleted at
// the operator's last logout while the agent lives on.
func SocketPath(stateDir string) string {
	clean := filepath.Clean(stateDir)
	if plain := filepath.Join(clean, "agent.sock"); len(plain) <= maxSocketPath {
		return plain
	}
	sum := sha256.Sum256([]byte(clean))
	hash := hex.EncodeToString(sum[:8])
	uid := ownerOf(clean)
	if info, err := os.Stat("/run"); uid == 0 && err == nil && info.IsDir() {
		return filepath.Join("/run", "pipedeck-"+hash, "agent.sock")
	}
	return filepath.Join("/tmp", fmt.Sprintf("pipedeck-%d-%s", uid, hash), "agent.sock")
}

// State names the files of a state directory that agent, keeper and client
// share.
type State struct{ Dir string }

// Socket is the agent's socket.
func (s State) Socket() string { return SocketPath(s.Dir) }

// AgentLock is held by the agent for life.
func (s State) AgentLock() string { return filepath.Join(s.Dir, "agent.lock") }

// KeeperLock is held by the keeper for life.
func (s State) KeeperLock() string { return filepath.Join(s.Dir, "keeper.lock") }

// Refusal is where an agent says why it will not start; see WriteRefusal.
func (s State) Refusal() string { return filepath.Join(s.Dir, "refusal.json") }

// Log is where agent and keeper write.
func (s State) Log() string { return filepath.Join(s.Dir, "agent.log") }
