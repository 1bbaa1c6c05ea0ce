// Package cli has the commands that a person types. Some run the agent in this process, or take
// down what it made (Commands); most others talk to a running agent through its local API.
// `deckhand replay` needs no agent: it runs recorded decisions through the core again.
package command

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"os"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/deckhand-node/deckhand/internal/agent"
	"github.com/deckhand-node/deckhand/internal/config/flags"
	"github.com/deckhand-node/deckhand/internal/kit/buildinfo"
	"github.com/deckhand-node/deckhand/internal/server/local"
)

// EnvRootDir is the environment variable that stands in for --root-dir.
const EnvRootDir = "DECKHAND_ROOT_DIR"

// Deps carries out the commands that run the agent or take it down, as Commands does. The
// functions that carry out a command return when ctx ends.
type Deps struct {
	// RootDir is the agent's root directory where no other is named.
	RootDir string
	// Kubelet says that the program was called by the kubelet's name.
	Kubelet bool
	// Self is how a person calls the program from a shell. If it is empty that isn't said.
	Self string
	// Getenv is os.Getenv if nil.
	Getenv func(string) string
	// Now is time.Now if nil.
	Now func() time.Time

	// AgentFlags are the flags of `deckhand agent`.
	AgentFlags *flags.Set
	// Agent runs the agent in the foreground with AgentFlags. What --version and --runonce print goes to out.
	// confirm asks the user a question, like UpRequest.Confirm.
	Agent func(ctx context.Context, out io.Writer, confirm func(question string) error) error

	// UpFlags adds flags of `deckhand up` beyond --root-dir, if any.
	UpFlags func(*pflag.FlagSet)
	// Steady is for how long all pods have to be ready until Up counts as done; 10 s if zero.
	Steady time.Duration
	// Up runs a standalone agent in the foreground.
	Up func(ctx context.Context, request UpRequest) error

	// StopAll runs an agent that stops what the last one with this root directory ran, and ends with ErrAllStopped. It
	// returns nil if nothing is there to stop. It calls started once the local API answers.
	StopAll func(ctx context.Context, rootDir string, started func()) error
	// Leftovers says, for a person, what Reset would remove, a line each; there are none if there is nothing.
	Leftovers func(rootDir string) ([]string, error)
	// Reset removes all that an agent with this root directory made on the host. The agent has ended.
	Reset func(ctx context.Context, rootDir string) error
}

// ErrAllStopped is what ends an agent that was asked to stop all pods, and has.
var ErrAllStopped = agent.ErrAllStopped

// UpRequest is what `deckhand up` asks of the agent.
type UpRequest struct {
	RootDir string
	// Manifests is the directory or file to run; empty for the agent's default.
	Manifests string
	Flags     *pflag.FlagSet
	// Terminal says that a table is drawn on the terminal, so that nothing else,
	// such as logs, must be written there.
	Terminal bool
	// Confirm asks the user whether to go on; it returns an error if not.
	Confirm func(question string) error
	// Started is to be called once the local API answers.
	Started func()
}

// app is what the commands share.
type app struct {
	deps Deps
}

const (
	groupRun   = "run"
	groupLook  = "look"
	groupReach = "reach"
	groupMore  = "more"
)

// New returns the root command. It writes to the streams set on it.
func New(deps Deps) *cobra.Command { return newApp(deps).command() }

func newApp(deps Deps) *app {
	if deps.Getenv == nil {
		deps.Getenv = os.Getenv
	}
	if deps.Now == nil {
		deps.Now = time.Now
	}
	return &app{deps: deps}
}

// command returns the root command.
func (a *app) command() *cobra.Command {
	root := &cobra.Command{
		Use:   "deckhand",
		Short: "Run pods on this machine",
		Long: `deckhand keeps pods running on one machine. It takes the kubelet's place there: it reads pod
manifests from a directory or a URL, or gets pods from a cluster's API server, and keeps
their containers running and healthy.

Called as "kubelet", or with flags and no command, deckhand runs the agent.`,
		Example: `  deckhand up ./manifests          run the pods in a directory, and show how they come up
  deckhand pods                    what runs
  deckhand why web                 why a pod isn't ready, and what you can do
  deckhand logs -f web             a pod's log`,
		SilenceErrors:     true,
		SilenceUsage:      true,
		Args:              unknownCommand,
		PersistentPreRunE: a.sharedFlags,
	}
	// Not cobra's own flag: that would take -v, which is the agent's, and needs a template to print this.
	printVersion := root.Flags().Bool("version", false, "print the version")
	root.RunE = func(cmd *cobra.Command, _ []string) error {
		if !*printVersion {
			return cmd.Help()
		}
		_, err := fmt.Fprintln(cmd.OutOrStdout(), "deckhand", buildinfo.Get().Version)
		return err
	}
	root.SetFlagErrorFunc(func(cmd *cobra.Command, err error) error { return usagef(cmd, "%w", &flagError{err}) })
	root.PersistentFlags().String("root-dir", a.deps.RootDir, "the agent's root directory; also $"+EnvRootDir)
	root.PersistentFlags().StringP("namespace", "n", "", "only this namespace")
	// it only fails for a flag that doesn't exist
	_ = root.RegisterFlagCompletionFunc("namespace", a.completeNamespaces)
	root.PersistentFlags().BoolP("all-namespaces", "A", false, "all namespaces, which is the default")
	root.AddGroup(&cobra.Group{ID: groupRun, Title: "Run:"}, &cobra.Group{ID: groupLook, Title: "Look:"},
		&cobra.Group{ID: groupReach, Title: "Reach into pods:"}, &cobra.Group{ID: groupMore, Title: "More:"})
	root.SetHelpCommandGroupID(groupMore)
	root.SetCompletionCommandGroupID(groupMore)
	root.AddCommand(
		a.agentCommand(), a.upCommand(), a.downCommand(), a.resetCommand(), a.runCommand(), a.stopCommand(),
		a.startCommand(), a.restartCommand(), a.execCommand(), a.attachCommand(), a.debugCommand(), a.cpCommand(),
		a.portForwardCommand(),
		a.podsCommand(), a.getCommand(), a.whyCommand(), a.describeCommand(), a.waitCommand(), a.containersCommand(),
		a.logsCommand(), a.topCommand(), a.eventsCommand(), a.imagesCommand(), a.nodeCommand(), a.configCommand(),
		a.journalCommand(),
		a.replayCommand(), a.versionCommand(),
	)
	root.AddCommand(a.known()...)
	root.AddCommand(a.signposts()...)
	return root
}

// sharedFlags sets --root-dir from the environment where it wasn't given. As kubectl has
// it, --all-namespaces counts more than --namespace.
func (a *app) sharedFlags(cmd *cobra.Command, _ []string) error {
	if flagValue(cmd, "all-namespaces") == "true" {
		if err := cmd.Flags().Set("namespace", ""); err != nil {
			return err
		}
	}
	flag := cmd.Flags().Lookup("root-dir")
	if flag == nil || flag.Value.String() == a.rootDir(cmd) {
		return nil
	}
	return cmd.Flags().Set(flag.Name, a.rootDir(cmd))
}

// rootDir is the root directory that the command line names, or the environment.
func (a *app) rootDir(cmd *cobra.Command) string {
	flag, env := cmd.Flags().Lookup("root-dir"), a.deps.Getenv(EnvRootDir)
	switch {
	case flag == nil || !flag.Changed && env != "":
		return cmp.Or(env, a.deps.RootDir)
	default:
		return flag.Value.String()
	}
}

func (a *app) client(cmd *cobra.Command) *local.Client {
	return local.NewClient(local.SocketPath(flagValue(cmd, "root-dir")))
}

// flagValue returns a flag's value as text, whoever defined it.
func flagValue(cmd *cobra.Command, name string) string {
	if flag := cmd.Flags().Lookup(name); flag != nil {
		return flag.Value.String()
	}
	return ""
}
