package ssh

import (
	"context"
	"fmt"
	"path"
)

// Recorded is what a node without any program tells of the deck's launches.
type Recorded struct {
	Installed bool     // a program is there: ask it instead
	Launches  int      // that were recorded
	Living    []string // process ids of them that exist, of whatever process
	Unread    []string // records that could not be made out
}

// Nothing says that no process of a recorded launch can live.
func (r Recorded) Nothing() bool { return !r.Installed && len(r.Living) == 0 && len(r.Unread) == 0 }

// recordedScript looks whether a process has a recorded number; a zombie does
// nothing any more. One that got the number later counts too: then the agent
// must judge.
const recordedScript = `
lives() {
  [ -d "/proc/$1" ] || return 0
  stat=
  read -r stat <"/proc/$1/stat" 2>/dev/null
  case $stat in *") Z "*) ;; *) say living "$1";; esac
}
for d in %s/runs/*/*/*/; do
  [ -d "$d" ] || continue
  say launch 1
  read=
  if [ -f "$d/started.json" ]; then
    for word in $(tr -c 'a-z0-9' ' ' <"$d/started.json"); do
      if [ "$last" = pid ]; then read=1; lives "$word"; fi
      last=$word
    done
  fi
  [ -n "$read" ] || say unread "$d"
done
[ -d /proc/self ] || say unread /proc
`

// Recorded looks for what lives of the deck without a program on the node.
func (n *Node) Recorded(ctx context.Context) (Recorded, error) {
	exe, err := n.program(ctx)
	if err != nil || exe != "" {
		return Recorded{Installed: exe != ""}, err
	}
	l, err := n.commands(ctx)
	if err != nil {
		return Recorded{}, err
	}
	values, err := l.script(ctx, fmt.Sprintf(recordedScript, quoteShell(path.Clean(n.stateDir))))
	if err != nil {
		return Recorded{}, err
	}
	return Recorded{Launches: len(values["launch"]), Living: values["living"], Unread: values["unread"]}, nil
}
