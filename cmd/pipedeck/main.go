// Command pipedeck drives and watches multi-GPU pipelines: console, headless
// commands, node agent and worker shim in one program. This package is the
// only one that knows every other: flags, wiring, exit codes.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"

	"github.com/spf13/cobra"

	"pipedeck/pipeline"
)

// version is set by the linker for a release.
var version = "0.1.0"

func main() {
	a := &app{in: os.Stdin, out: os.Stdout, err: os.Stderr, env: os.Getenv}
	os.Exit(a.run(os.Args[1:]))
}

// app is one invocation: its streams, environment and global flags.
type app struct {
	in   io.Reader
	out  io.Writer
	err  io.Writer
	env  func(string) string
	flag globalFlags
	view viewFlags
	// parsed says that a command line was understood: an error before that is
	// one of usage.
	parsed bool
	nodes  farNodes // reached over SSH
	said   sync.Mutex
	asking sync.Mutex   // one question on the terminal at a time
	owners sync.Map     // *client.Client to the *far that it talks to
	shut   atomic.Bool  // the console has the terminal: nobody can be asked
	words  atomic.Int64 // how often something was said
}

// globalFlags hold for every command.
type globalFlags struct {
	spec string // -f
	node string
	json bool
	// here says that this machine is the node, whatever way the spec names to it.
	here bool
	// simulate is the folder of simulated GPUs that a console asks for.
	simulate string
	// noDeploy keeps anything from being installed or started on a node.
	noDeploy       bool
	acceptHostKeys []string
}

// The exit codes of DESIGN section 6.
const (
	exitOK       = 0
	exitDegraded = 1
	exitFailed   = 2
	exitUnknown  = 3
	exitUsage    = 64
	exitRefused  = 75
)

// exitError ends a command with a code when everything was already said.
type exitError int

// Error is never shown.
func (e exitError) Error() string { return fmt.Sprintf("exit %d", int(e)) }

// run executes one command line and returns the exit code.
func (a *app) run(args []string) int {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP)
	defer stop()
	defer a.closeNodes()
	root := a.rootCommand()
	root.SetArgs(args)
	root.SetIn(a.in)
	root.SetOut(a.out)
	root.SetErr(a.err)
	err := root.ExecuteContext(ctx)
	if err != nil && !a.parsed {
		err = asUsage(root, err)
	}
	return a.report(err)
}

// report says what went wrong on stderr and chooses the exit code.
func (a *app) report(err error) int {
	var code exitError
	var p *pipeline.Problem
	switch {
	case err == nil:
		return exitOK
	case errors.As(err, &code):
		return int(code)
	case errors.As(err, &p):
		a.say("pipedeck: %s", err)
		if p.Hint != "" {
			a.say("hint: %s", p.Hint)
		}
		return exitCode(p.Kind)
	case errors.Is(err, context.Canceled):
		a.say("pipedeck: interrupted; what runs in the agent goes on")
		return exitUnknown
	default:
		a.say("pipedeck: %s", err)
		return exitFailed
	}
}

func exitCode(k pipeline.ProblemKind) int {
	switch k {
	case pipeline.ProblemUsage:
		return exitUsage
	case pipeline.ProblemRefused:
		return exitRefused
	case pipeline.ProblemUnreachable:
		return exitUnknown
	case pipeline.ProblemFailed:
		return exitFailed
	}
	return exitFailed
}

// say writes one message to stderr: stdout carries results only. Text from
// nodes is cleaned, line by line.
func (a *app) say(format string, args ...any) {
	a.words.Add(1)
	a.said.Lock() // several nodes may have something to say
	defer a.said.Unlock()
	for line := range strings.Lines(fmt.Sprintf(format, args...)) {
		_, _ = fmt.Fprintln(a.err, pipeline.Clean(strings.TrimRight(line, "\n"))) // there is nobody else to tell
	}
}

// rootCommand builds the command tree. Without a subcommand the console opens.
func (a *app) rootCommand() *cobra.Command {
	var watch string
	root := &cobra.Command{
		Use:   "pipedeck",
		Short: "Drive and watch multi-GPU pipelines; move what they make to S3 with proof",
		Long: `pipedeck drives and watches multi-GPU pipelines and moves what they make to S3
with proof. Without a command it opens the console of ./pipedeck.yaml.

Exit codes: 0 healthy or done, 1 degraded, 2 failed, 3 unreachable or unknown,
64 usage or spec error, 75 refused.`,
		Example: `  pipedeck                      open the console of ./pipedeck.yaml
  pipedeck demo                 see it all with nothing set up
  pipedeck --json               one snapshot for a script
  pipedeck start extract        start a stage`,
		Version:       version,
		SilenceUsage:  true,
		SilenceErrors: true,
		Args:          cobra.NoArgs,
		// The flags of a command are its own: -f is the spec before a command's
		// name, and "follow" after `logs`.
		TraverseChildren: true,
		PersistentPreRun: func(*cobra.Command, []string) { a.parsed = true },
		RunE: func(cmd *cobra.Command, _ []string) error {
			if a.flag.json || cmd.Flags().Changed("watch") {
				return a.snapshot(cmd.Context(), watch)
			}
			return a.console(cmd.Context())
		},
	}
	root.SetVersionTemplate("pipedeck {{.Version}}\n")
	f := root.PersistentFlags()
	f.StringVar(&a.flag.node, "node", "", "one node, where the spec has several; else all")
	_ = root.RegisterFlagCompletionFunc("node", a.completeNodes) // only fails for a flag that does not exist
	f.BoolVar(&a.flag.noDeploy, "no-deploy", false, "install and start nothing on a node over SSH")
	f.BoolVar(&a.flag.json, "json", false, "print the result as JSON")
	root.Flags().StringVar(&watch, "watch", "", "with --json: one object a line, this often (such as 2s)")
	a.viewFlags(root)
	root.SetFlagErrorFunc(usageError)
	root.AddCommand(
		a.snapshotCommand(), a.checkCommand(), a.demoCommand(),
		a.artifactsCommand(), a.planCommand(), a.applyCommand(), a.actionCommand(),
		a.coverageCommand(), a.logsCommand(), a.historyCommand(),
		a.agentCommand(), a.shimCommand(), a.simWorkerCommand(),
	)
	for _, x := range acts() {
		root.AddCommand(a.actCommand(x))
	}
	for _, c := range allCommands(root) {
		a.specFlag(c)
		c.Args = usageArgs(c.Args)
	}
	return root
}

// specFlag gives a command -f for the spec. Where the command uses -f itself
// only the long name is left; before the command's name -f works always.
func (a *app) specFlag(c *cobra.Command) {
	short := "f"
	if c.Flags().ShorthandLookup(short) != nil {
		short = ""
	}
	c.Flags().StringVarP(&a.flag.spec, "file", short, "pipedeck.yaml", "the deck's spec")
}

func allCommands(root *cobra.Command) []*cobra.Command {
	out := append(make([]*cobra.Command, 0, 1+len(root.Commands())), root)
	for _, c := range root.Commands() {
		out = append(out, allCommands(c)...)
	}
	return out
}

// group is a command that only holds others.
func group(c *cobra.Command) *cobra.Command {
	c.Args = cobra.NoArgs
	c.RunE = func(cmd *cobra.Command, _ []string) error {
		var names []string
		for _, sub := range cmd.Commands() {
			if sub.IsAvailableCommand() {
				names = append(names, sub.Name())
			}
		}
		return usageError(cmd, fmt.Errorf("it needs one of %s", strings.Join(names, ", ")))
	}
	return c
}

func usageError(cmd *cobra.Command, err error) error {
	return pipeline.Problemf(pipeline.ProblemUsage, fmt.Sprintf("`%s --help` shows how it is used", cmd.CommandPath()),
		"cannot run %q: %w", cmd.CommandPath(), err)
}

// asUsage makes what cobra says of a command line a usage Problem.
func asUsage(cmd *cobra.Command, err error) error {
	if _, told := errors.AsType[*pipeline.Problem](err); told {
		return err
	}
	return usageError(cmd, err)
}

// usageArgs makes wrong arguments a usage Problem.
func usageArgs(check cobra.PositionalArgs) cobra.PositionalArgs {
	if check == nil {
		return nil
	}
	return func(cmd *cobra.Command, args []string) error {
		if err := check(cmd, args); err != nil {
			cmd.SuggestionsMinimumDistance = 2
			if near := cmd.SuggestionsFor(strings.Join(args, " ")); cmd.HasSubCommands() && len(near) > 0 {
				err = fmt.Errorf("%w: did you mean %s?", err, strings.Join(near, " or "))
			}
			return usageError(cmd, err)
		}
		return nil
	}
}
