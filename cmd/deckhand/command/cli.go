// Package command implements the commands of deckhand. The commands that Commands implements run the agent in this
// process, or remove everything that an agent created. Most other commands call the local API of a running agent.
// `deckhand replay` replays recorded decisions, without an agent.
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

// EnvRootDir is the environment variable with the default of --root-dir.
const EnvRootDir = "DECKHAND_ROOT_DIR"

// Deps implements the commands that run the agent or remove everything that it created; Commands returns it. Its
// functions return when ctx ends.
type Deps struct {
	// RootDir is the default of the agent's root directory.
	RootDir string
	// Kubelet is set if the program was called as the kubelet.
	Kubelet bool
	// Self is the program's name or path for a shell. If it is empty, hints for other commands are omitted.
	Self string
	// Getenv is os.Getenv if nil.
	Getenv func(string) string
	// Now is time.Now if nil.
	Now func() time.Time

	// AgentFlags are the flags of `deckhand agent`.
	AgentFlags *flags.Set
	// Agent runs the agent in the foreground with AgentFlags. Output of --version and --runonce goes to out. confirm
	// asks the user a question, like UpRequest.Confirm.
	Agent func(ctx context.Context, out io.Writer, confirm func(question string) error) error

	// UpFlags adds flags of `deckhand up` beyond --root-dir, if any.
	UpFlags func(*pflag.FlagSet)
	// Steady is how long all pods have to stay ready before Up reports success; 10 s if zero.
	Steady time.Duration
	// Up runs a standalone agent in the foreground.
	Up func(ctx context.Context, request UpRequest) error

	// StopAll runs an agent that stops the pods of the last agent with this root directory. It returns ErrAllStopped
	// when they have stopped, or nil if there is nothing to stop. It calls the function started once the local API
	// serves requests.
	StopAll func(ctx context.Context, rootDir string, started func()) error
	// Leftovers describes what Reset would remove, with one string for each thing.
	Leftovers func(rootDir string) ([]string, error)
	// Reset removes everything on the host that an agent with this root directory created. The agent must have
	// stopped.
	Reset func(ctx context.Context, rootDir string) error
}

// ErrAllStopped is the error of an agent that has stopped all pods because a user requested it.
var ErrAllStopped = agent.ErrAllStopped

// UpRequest has the arguments of Deps.Up.
type UpRequest struct {
	RootDir string
	// Manifests is the directory or file to run; empty for the agent's default.
	Manifests string
	Flags     *pflag.FlagSet
	// Terminal is set if a table is drawn on the terminal; then nothing else, such as logs, may be written to it.
	Terminal bool
	// Confirm asks the user a question. It returns an error unless the user answers yes.
	Confirm func(question string) error
	// Started has to be called once the local API serves requests.
	Started func()
}

// app is the state that the commands share.
type app struct {
	deps Deps
}

const (
	groupRun   = "run"
	groupLook  = "look"
	groupReach = "reach"
	groupMore  = "more"
)

// New returns the root command. It reads from and writes to the streams that are set on it.
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
		Example: `  deckhand up ./manifests          run the pods in a directory, and show their progress
  deckhand pods                    list the pods
  deckhand why web                 why a pod isn't ready, and how to fix it
  deckhand logs -f web             a pod's log`,
		SilenceErrors:     true,
		SilenceUsage:      true,
		Args:              unknownCommand,
		PersistentPreRunE: a.sharedFlags,
	}
	// Cobra's own version flag would use -v, which is a flag of the agent, and would need a template for this output.
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
	// only fails for a flag that doesn't exist
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
		a.logsCommand(), a.topCommand(), a.eventsCommand(), a.imagesCommand(), a.volumesCommand(), a.nodeCommand(),
		a.configCommand(),
		a.journalCommand(),
		a.replayCommand(), a.versionCommand(),
	)
	root.AddCommand(a.known()...)
	root.AddCommand(a.signposts()...)
	return root
}

// sharedFlags sets --root-dir from the environment if it isn't given. As in kubectl, --all-namespaces overrides
// --namespace.
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

// rootDir returns the root directory from the command line, or from the environment.
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

// flagValue returns a flag's value as a string, also for inherited flags.
func flagValue(cmd *cobra.Command, name string) string {
	if flag := cmd.Flags().Lookup(name); flag != nil {
		return flag.Value.String()
	}
	return ""
}
