package ssh

import (
	"context"
	"encoding/json"
	"fmt"
	"path"

	"pipedeck/pipeline"
)

// Recorded is what a node without any program tells of the deck's launches.
type Recorded struct {
	Installed bool     // a program is there: ask it instead
	Launches  int      // that were recorded
	Living    []string // process ids of them that exist, of whatever process
	Wanted    []string // stages that the next agent would bring workers back of
	Unread    []string // records that could not be made out
}

// Nothing says that no process of a recorded launch can live, nor come back.
func (r Recorded) Nothing() bool {
	return !r.Installed && len(r.Living) == 0 && len(r.Wanted) == 0 && len(r.Unread) == 0
}

// wanted adds what the deck's record of what is wanted says.
func (r *Recorded) wanted(text string) {
	var doc struct {
		Stages map[string]pipeline.StageWant `json:"stages"`
	}
	if err := json.Unmarshal([]byte(text), &doc); err != nil {
		r.Unread = append(r.Unread, "deck.json: "+err.Error())
		return
	}
	for name, st := range doc.Stages {
		ended := len(st.Workers) > 0
		for _, w := range st.Workers {
			ended = ended && (w.Done || w.Held != "")
		}
		if st.Want == pipeline.WantRunning && !ended {
			r.Wanted = append(r.Wanted, name)
		}
	}
}

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
if [ -e %[1]s ]; then
cd %[1]s 2>/dev/null || say unread %[1]s
if [ -e deck.json ]; then say deck "$(tr '\n' ' ' <deck.json)"; fi
for d in runs/*/*/*/; do
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
fi
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
	r := Recorded{Launches: len(values["launch"]), Living: values["living"], Unread: values["unread"]}
	for _, text := range values["deck"] {
		r.wanted(text)
	}
	return r, nil
}
