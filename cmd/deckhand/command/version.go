package command

import (
	"errors"
	"fmt"

	"github.com/spf13/cobra"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/deckhand-node/deckhand/cmd/deckhand/command/show"
	"github.com/deckhand-node/deckhand/internal/kit/buildinfo"
	"github.com/deckhand-node/deckhand/internal/kit/terminal"
	"github.com/deckhand-node/deckhand/internal/report/podstatus"
	"github.com/deckhand-node/deckhand/internal/server/local"
)

// versions is the output of `deckhand version -o json`.
type versions struct {
	metav1.TypeMeta `json:",inline"`

	Client buildinfo.Info `json:"client"`
	// Agent is omitted if no agent answers.
	Agent *local.AgentInfo `json:"agent,omitempty"`
	Node  string           `json:"node,omitempty"`
}

func (a *app) versionCommand() *cobra.Command {
	var clientOnly bool
	cmd := &cobra.Command{
		Use:     "version",
		GroupID: groupMore,
		Short:   "Print the versions of this program and of the running agent",
		Args:    arguments(cobra.NoArgs),
		RunE: func(cmd *cobra.Command, _ []string) error {
			v := versions{TypeMeta: show.Kind("Versions"), Client: buildinfo.Get()}
			var agentErr error
			if !clientOnly {
				var snapshot local.Snapshot
				if snapshot, agentErr = a.client(cmd).Snapshot(cmd.Context()); agentErr == nil {
					v.Agent, v.Node = &snapshot.Agent, snapshot.Node
				}
			}
			if done, err := show.As(textTo(cmd), flagValue(cmd, "output"), v); done {
				return err
			}
			fmt.Fprintln(textTo(cmd), "Client: ", v.Client)
			switch {
			case v.Agent != nil:
				fmt.Fprintln(textTo(cmd), "Agent:  ", a.describeAgent(v))
			case errors.As(agentErr, new(*local.NoAgentError)):
				fmt.Fprintln(textTo(cmd), "Agent:   none running at", a.client(cmd).Path())
			case agentErr != nil:
				return agentErr
			}
			return nil
		},
	}
	cmd.Flags().BoolVar(&clientOnly, "client", false, "don't ask the agent")
	outputFlag(cmd, dataFormats...)
	return cmd
}

func (a *app) describeAgent(v versions) string {
	text := fmt.Sprintf("%s on node %s, pid %d, up %s", v.Agent.Version, v.Node, v.Agent.PID,
		podstatus.Since(v.Agent.Started, a.deps.Now()))
	if v.Agent.RuntimeName == "" {
		return text + "\nRuntime: not reached yet"
	}
	text += fmt.Sprintf("\nRuntime: %s %s", terminal.Line(v.Agent.RuntimeName), terminal.Line(v.Agent.RuntimeVersion))
	if !v.Agent.RuntimeReady {
		text += ", not ready"
		if v.Agent.RuntimeMessage != "" {
			text += ": " + terminal.Line(v.Agent.RuntimeMessage)
		}
	}
	return text
}
