package command

import (
	"bytes"
	"cmp"
	"os"
	"path/filepath"
	"slices"
	"strconv"

	"github.com/spf13/cobra"

	"github.com/deckhand-node/deckhand/cmd/deckhand/command/show"
	hostprocess "github.com/deckhand-node/deckhand/internal/host/process"
)

func (a *app) containersCommand() *cobra.Command {
	var noTrunc bool
	cmd := &cobra.Command{
		Use:     "containers [POD...]",
		Aliases: []string{"container"},
		GroupID: groupLook,
		Short:   "List containers with their IDs and processes",
		Long: `List the containers of pods: the ID by which the runtime knows each, and the number that its
first process has on this machine, for tools of the host (nsenter, strace, crictl). NAME may be
the beginning of names, NAMESPACE/NAME or pod/NAME.`,
		Example: `  deckhand containers
  deckhand containers web --no-trunc
  deckhand containers -o jsonpath='{.items[*].pid}'`,
		ValidArgsFunction: a.completePods,
		RunE: func(cmd *cobra.Command, args []string) error {
			if len(args) > 0 && slices.Contains([]string{"ls", "list", "ps"}, args[0]) {
				args = args[1:] // as in podman
			}
			selector, err := selector(cmd)
			if err != nil {
				return err
			}
			snapshot, err := a.client(cmd).Snapshot(cmd.Context())
			if err != nil {
				return err
			}
			list := show.NewPodList(
				show.PodOptions{Selector: selector, Namespace: flagValue(cmd, "namespace"), Names: args,
					Now: a.deps.Now})
			views, missing := list.Choose(snapshot)
			containers := show.ContainersOf(views, firstProcesses("/proc"))
			if done, err := show.As(textTo(cmd), flagValue(cmd, "output"), show.ListOf(containers)); done ||
				err != nil {
				return cmp.Or(err, missing)
			}
			if len(containers) == 0 && missing == nil {
				none(cmd, "containers")
				return nil
			}
			if len(containers) > 0 {
				if err := writeTable(cmd, show.ContainerRows(containers, noTrunc, a.deps.Now())); err != nil {
					return err
				}
			}
			return missing
		},
	}
	cmd.Flags().BoolVar(&noTrunc, "no-trunc", false, "show IDs in full")
	cmd.Flags().BoolP("all", "a", true, "those that have ended, too, which is the default")
	// for users of podman container ls -a; only fails for a flag that doesn't exist
	_ = cmd.Flags().MarkHidden("all")
	selectorFlag(cmd)
	outputFlag(cmd, dataFormats...)
	return cmd
}

// firstProcesses returns a function from a container's ID to the ID of its first process on this machine; 0 if none
// runs. The first process is the one that was started first of the processes in the cgroup named after the container.
func firstProcesses(proc string) func(id string) int {
	type member struct {
		pid     int
		started uint64
		group   []byte
	}
	var list []member
	groups, _ := filepath.Glob(filepath.Join(proc, "[0-9]*", "cgroup")) // the pattern is valid
	for _, path := range groups {
		dir := filepath.Dir(path)
		group, err := os.ReadFile(path)
		stat, runs := hostprocess.ReadStat(filepath.Join(dir, "stat"))
		pid, notNumber := strconv.Atoi(filepath.Base(dir))
		if err == nil && runs && notNumber == nil {
			list = append(list, member{pid, stat.Start, group})
		}
	}
	slices.SortFunc(list, func(a, b member) int {
		return cmp.Or(cmp.Compare(a.started, b.started), cmp.Compare(a.pid, b.pid))
	})
	return func(id string) int {
		for _, p := range list {
			if id != "" && bytes.Contains(p.group, []byte(id)) {
				return p.pid
			}
		}
		return 0
	}
}
