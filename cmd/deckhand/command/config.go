package command

import (
	"cmp"
	"errors"
	"fmt"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/deckhand-node/deckhand/internal/config"
	"github.com/deckhand-node/deckhand/internal/config/fields"
	"github.com/deckhand-node/deckhand/internal/config/flags"
	"github.com/deckhand-node/deckhand/internal/config/paths"
	"github.com/deckhand-node/deckhand/internal/server/local"
)

func (a *app) configCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:     "config",
		GroupID: groupLook,
		Short:   "Show the configuration in force, check files before they are used, explain fields",
		Example: `  deckhand config view                             the running agent's values, and where each was set
  deckhand config check new.yaml                   all errors of a file
  deckhand config docs imageGC                     the meaning of fields, and their effect in deckhand`,
		Args: arguments(cobra.NoArgs),
		RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	cmd.AddCommand(a.viewConfigCommand(), a.checkConfigCommand(), a.explainConfigCommand())
	return cmd
}

// agentFlags adds all flags of the agent to a command that computes a configuration. The help shows only the flags that
// name files.
func (a *app) agentFlags(cmd *cobra.Command) *flags.Set {
	set := flags.New(a.deps.RootDir)
	set.AddTo(cmd.Flags())
	cmd.Flags().VisitAll(func(f *pflag.Flag) {
		f.Hidden = f.Name != "config" && f.Name != "config-dir" && f.Name != "root-dir"
	})
	return set
}

// agentFlagsGiven reports whether the command line has flags of the agent that change the configuration.
func agentFlagsGiven(cmd *cobra.Command) bool {
	given := false
	cmd.Flags().Visit(func(f *pflag.Flag) {
		given = given || f.Name != "root-dir" && f.Name != "output" && f.Name != "skip-files" &&
			f.Name != "namespace" && f.Name != "all-namespaces"
	})
	return given
}

func (a *app) viewConfigCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "view",
		Short: "Print the configuration in force, with where each setting comes from",
		Long: `Print the configuration that the running agent goes by, complete with defaults. Behind
each setting that isn't a default stands where it comes from: a file and line, or a flag.

With flags of the agent (--config, --config-dir and all others) it prints what an agent
started with them would go by, whether one runs or not.`,
		Example: `  deckhand config view
  deckhand config view --config /etc/deckhand/config.yaml --config-dir /etc/deckhand/config.d`,
		Args: arguments(cobra.NoArgs),
	}
	set := a.agentFlags(cmd)
	outputFlag(cmd, "yaml", "json")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		view, err := a.configuration(cmd, set)
		if err != nil {
			return err
		}
		if flagValue(cmd, "output") == "json" {
			_, err = textTo(cmd).Write(paths.JSON(&view.Kubelet))
			return err
		}
		_, err = textTo(cmd).Write(paths.YAML(&view.Kubelet, func(path string) string { return view.Origins[path] }))
		return err
	}
	return cmd
}

// configuration returns the running agent's configuration or, if flags of the agent are given, the one that they
// produce.
func (a *app) configuration(cmd *cobra.Command, set *flags.Set) (local.Configuration, error) {
	if !agentFlagsGiven(cmd) {
		view, err := a.client(cmd).Configuration(cmd.Context())
		if errors.As(err, new(*local.NoAgentError)) {
			return view, fmt.Errorf("%w; `deckhand config view --config FILE` shows what an agent would go by", err)
		}
		return view, err
	}
	c, err := config.Load(cmd.Context(), set)
	if err != nil {
		return local.Configuration{}, err
	}
	return local.Configuration{Kubelet: *paths.Masked(&c.Kubelet), Origins: c.Origins()}, nil
}

func (a *app) explainConfigCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "docs [FIELD...]",
		Short: "Explain the fields of the configuration file, and their effect in deckhand",
		Long: `Explain fields of a KubeletConfiguration: their meaning, their defaults, their effect in this
build, and whether a reload applies a change or the agent has to be restarted. FIELD is a path
such as logging.verbosity, or the beginning of one; without FIELD, all fields are explained.`,
		Example: `  deckhand config docs evictionHard
  deckhand config docs logging authentication.webhook
  deckhand config docs -o markdown > fields.md`,
	}
	outputFlag(cmd, "markdown", "json")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		entries, err := fields.Select(fields.Entries(config.SetDefaults), args...)
		if err != nil {
			return &usageError{err}
		}
		out := cmd.OutOrStdout()
		switch flagValue(cmd, "output") {
		case "markdown":
			return fields.Markdown(out, entries)
		case "json":
			return fields.JSON(out, entries)
		}
		return fields.Text(out, entries, cmp.Or(terminalWidth(out), 100))
	}
	return cmd
}
