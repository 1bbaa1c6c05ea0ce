package command

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/deckhand-node/deckhand/cmd/deckhand/command/show"
	"github.com/deckhand-node/deckhand/internal/agent/reset"
)

// elsewhere has hints for commands that deckhand doesn't have.
var elsewhere = []show.Hint{
	{
		Words: "apply create replace diff",
		Alone: "put the manifest into the manifest directory (staticPodPath in `deckhand config view`), or run it " +
			"in the foreground: `deckhand run FILE`",
		Cluster: "that is done to the cluster: `kubectl apply -f FILE`; the manifest of a static pod belongs into the " +
			"manifest directory (staticPodPath in `deckhand config view`)",
	},
	{
		Words: "play kube",
		Alone: "run a manifest in the foreground: `deckhand run FILE`",
		Cluster: "`kubectl apply -f FILE` gives a manifest to the cluster, `deckhand run FILE` runs it on this node, " +
			"in the foreground",
	},
	{
		Words: "delete rm rmp kill",
		Alone: "remove the pod's manifest, and it is stopped: `deckhand pods -o wide` says where that is (ORIGIN); " +
			"`deckhand stop POD` stops it for the time being",
		Cluster: "`kubectl delete pod POD -n NAMESPACE` does that; a static pod ends when its manifest is removed: " +
			"`deckhand pods -o wide` says where that is (ORIGIN), and `deckhand stop POD` stops it for the time " +
			"being",
	},
	{
		Words: "edit patch set label annotate scale autoscale rollout expose",
		Alone: "edit the pod's manifest: `deckhand pods -o wide` says where that is (ORIGIN)",
		Cluster: "edit the cluster's object: `kubectl edit pod POD -n NAMESPACE`, or the pod's controller " +
			"(Deployment, Job, ...); a static pod is edited in its manifest: `deckhand pods -o wide` says where " +
			"that is (ORIGIN)",
	},
	{
		Words: "port proxy",
		Alone: "`deckhand port-forward POD PORT` carries connections to a pod; without it use the pod's address " +
			"(`deckhand pods`), or a hostPort in its manifest",
		Cluster: "`deckhand port-forward POD PORT` carries connections to a pod, `kubectl proxy` to the API server; " +
			"without them use the pod's address (`deckhand pods`), or a Service",
	},
	{
		Words: "stats statsp",
		Alone: "`deckhand top pods` shows what pods use, `deckhand top node` what the node does",
	},
	{
		Words: "explain",
		Alone: "`deckhand config docs FIELD` explains settings, `deckhand why POD` a pod",
		Cluster: "`deckhand config docs FIELD` explains settings, `deckhand why POD` a pod, `kubectl explain FIELD` " +
			"the API",
	},
	{
		Words: "validate",
		Alone: "`deckhand config check FILE` checks a configuration; `deckhand pods` lists errors in manifests",
		Cluster: "`deckhand config check FILE` checks a configuration, `kubectl apply --dry-run=server -f FILE` a " +
			"manifest; `deckhand pods` lists errors in manifests of static pods",
	},
	{
		Words: "inspect inspectp",
		Alone: "`deckhand pods -o yaml POD` prints a pod with spec and status",
	},
	{
		Words: "inspecti",
		Alone: "`deckhand images inspect IMAGE` prints the details of an image",
	},
	{
		Words: "info cluster-info",
		Alone: "`deckhand version` shows agent, node and runtime, `deckhand config view` the configuration",
		Cluster: "`deckhand version` shows agent, node and runtime, `deckhand config view` the node's configuration, " +
			"`kubectl cluster-info` the cluster",
	},
	{
		Words: "api-resources api-versions",
		Alone: "the manifests that deckhand reads are in `deckhand pods -o wide` (ORIGIN); it has no API server",
		Cluster: "`kubectl api-resources` and `kubectl api-versions` ask the API server; of its objects an agent has " +
			"pods: `deckhand pods`",
	},
	{
		Words: "secret network networks",
		Alone: "pods' volumes and objects are in manifests: `deckhand pods -o wide` says where those are (ORIGIN); " +
			"all pods are on one network",
		Cluster: "the API server has the objects that pods refer to: `kubectl get configmaps,secrets,pvc -n " +
			"NAMESPACE`; `deckhand describe pod POD` shows a pod's volumes",
	},
	{
		Words: "import",
		Alone: "`deckhand images import FILE` reads archives of images",
	},
	{
		Words: "system",
		Alone: "`deckhand pods` and `deckhand images` list pods and images, `deckhand images prune` frees space, " +
			"`deckhand version` shows agent and runtime",
	},
	{
		Words: "generate quadlet",
		Alone: "`deckhand pods -o yaml POD` prints a pod as a manifest",
	},
	{
		Words: "healthcheck auth pause unpause rename",
		Alone: "the manifest defines the pod: `deckhand why POD` shows its state, `deckhand stop POD` and " +
			"`deckhand start POD` keep it from running",
		Cluster: "change the pod in the API server with kubectl: `deckhand why POD` shows its state; " +
			"`deckhand stop POD` and `deckhand start POD` are for static pods",
	},
	{
		Words:   "cordon uncordon drain taint",
		Alone:   "that is for nodes of a cluster, and this machine is in none: `deckhand down` stops all of its pods",
		Cluster: "`kubectl drain NODE` and the like do that; `deckhand node` shows this node with its taints",
	},
	{
		Words: "build push login logout commit history search",
		Alone: "images are built elsewhere: `deckhand images pull NAME` fetches them, `deckhand images import FILE` " +
			"reads archives",
	},
}

// flagsElsewhere has hints for flags that commands don't have, each as COMMAND/FLAG.
var flagsElsewhere = []show.Hint{
	{
		Words: "run/image run/d run/detach run/it run/i run/t run/p run/v run/e run/env run/rm run/name run/publish " +
			"run/volume run/restart",
		Alone: "a manifest defines the pod: `deckhand run FILE`",
		Cluster: "a manifest defines the pod: `deckhand run FILE` runs it on this node; `kubectl run NAME " +
			"--image=IMAGE` makes a pod of the cluster",
	},
	{
		Words: "debug/copy-to debug/set-image debug/share-processes debug/same-node debug/replace",
		Alone: "a copy of a pod is another manifest, from `deckhand pods -o yaml POD`: `deckhand run FILE` runs it " +
			"in the foreground",
		Cluster: "a copy is a pod of the cluster: `kubectl debug POD -n NAMESPACE --copy-to=NAME` makes it",
	},
	{
		Words: "cp/retries",
		Alone: "nothing is lost on this machine's socket: without it",
	},
	{
		Words: "port-forward/pod-running-timeout exec/pod-running-timeout attach/pod-running-timeout",
		Alone: "`deckhand why POD` says when the pod runs, and ends with exit code 0 once it is ready",
	},
	{
		Words: "list/q list/quiet images/q images/quiet",
		Alone: "`-o jsonpath={.items[*].id}` prints IDs alone",
	},
	{
		Words: "load/i load/input",
		Alone: "the file needs no flag: `deckhand load FILE`",
	},
}

// inCluster reports whether the agent with this command's root directory runs, or last ran, as a node of a cluster.
func (a *app) inCluster(cmd *cobra.Command) bool { return reset.InCluster(a.rootDir(cmd)) }

// inClusterBy is inCluster for arguments that may have unknown flags.
func (a *app) inClusterBy(cmd *cobra.Command, args []string) bool {
	flags := pflag.NewFlagSet("", pflag.ContinueOnError)
	flags.ParseErrorsAllowlist.UnknownFlags = true
	flags.Usage = func() {}
	root := flags.String("root-dir", a.rootDir(cmd), "")
	_ = flags.Parse(args) // the command itself reports other errors in args
	return reset.InCluster(*root)
}

// signposts returns hidden commands that print a hint instead of the commands of other tools, with any flags.
func (a *app) signposts() []*cobra.Command {
	var list []*cobra.Command
	for _, h := range elsewhere {
		for _, word := range strings.Fields(h.Words) {
			list = append(list, &cobra.Command{
				Use: word, Hidden: true, DisableFlagParsing: true,
				RunE: func(cmd *cobra.Command, args []string) error {
					return &usageError{fmt.Errorf("deckhand has no command %q: %s", word,
						h.Text(a.inClusterBy(cmd, args)))}
				},
			})
		}
	}
	return list
}

// known returns commands that users of kubectl, crictl and podman expect at another place or with another name.
func (a *app) known() []*cobra.Command {
	rmi, load := a.removeImageCommand(), a.importImageCommand()
	rmi.Use, load.Use = "rmi IMAGE...", "load FILE..."
	list := []*cobra.Command{rmi, a.pullImageCommand(), load, a.saveImagesCommand(), a.tagImageCommand()}
	for _, c := range list {
		c.Hidden, c.Aliases = true, nil
	}
	return list
}

// getCommand lists the same as other commands, with kubectl's syntax.
func (a *app) getCommand() *cobra.Command {
	cmd := a.podsCommand() // for `get pod/web`
	run := cmd.RunE
	cmd.Use, cmd.Aliases = "get pods|events|images|nodes [NAME...]", nil
	cmd.Short, cmd.Long = "List pods, events, images or nodes, in kubectl's words",
		"List pods, events, images or nodes, in kubectl's words. Several kinds are written as pods,events."
	cmd.Example = `  deckhand get pods -A
  deckhand get pod web -o yaml
  deckhand get pods,events`
	cmd.ValidArgsFunction = cobra.FixedCompletions([]string{"pods", "events", "images", "nodes"},
		cobra.ShellCompDirectiveNoFileComp)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if len(args) == 0 {
			return usagef(cmd, "say what: pods, events, images or nodes")
		}
		if kinds := strings.Split(args[0], ","); len(kinds) > 1 {
			return a.getKinds(cmd, kinds, args[1:])
		}
		for _, arg := range args {
			kind, name, named := strings.Cut(arg, "/")
			if named && isNodeKind(kind) && len(args) == 1 {
				return a.listNodes(cmd, []string{name})
			}
			if !named || !isPodKind(kind) {
				return a.noSuchKind(cmd, kind)
			}
		}
		return run(cmd, args)
	}
	pods, events, images, nodes := a.podsCommand(), a.eventsCommand(), a.listImagesCommand(), a.nodesCommand()
	pods.Aliases = []string{"pod", "po", "all"}
	images.Use, images.Aliases = "images", []string{"image"}
	for _, c := range []*cobra.Command{pods, events, images, nodes} {
		c.GroupID, c.Hidden = "", true // the help lists the command at its usual place
		cmd.AddCommand(c)
	}
	return cmd
}

// getKinds lists several kinds one after the other.
func (a *app) getKinds(cmd *cobra.Command, kinds, names []string) error {
	if len(names) > 0 {
		return usagef(cmd, "with several kinds there can be no name (%s): write pod/%s", names[0], names[0])
	}
	if format := flagValue(cmd, "output"); format != "" && format != "wide" {
		return usagef(cmd, "-o %s is for one kind at a time", format)
	}
	if flagValue(cmd, "watch") == "true" {
		return usagef(cmd, "--watch is for one kind at a time")
	}
	var lists []*cobra.Command
	for _, kind := range kinds {
		list, rest, err := cmd.Find([]string{strings.ToLower(kind)})
		if err != nil || list == cmd || len(rest) > 0 {
			return a.noSuchKind(cmd, kind)
		}
		lists = append(lists, list)
	}
	for i, list := range lists {
		if i > 0 {
			fmt.Fprintln(textTo(cmd))
		}
		// The command of this kind may not have some of the flags: those are meant for the other kinds.
		list.SetContext(cmd.Context())
		list.SetOut(cmd.OutOrStdout())
		list.SetErr(cmd.ErrOrStderr())
		err := list.ParseFlags(nil)
		cmd.Flags().Visit(func(f *pflag.Flag) {
			if own := list.Flags().Lookup(f.Name); own != nil && own != f {
				err = errors.Join(err, copyValue(own, f))
			}
		})
		if err := errors.Join(err, list.RunE(list, nil)); err != nil {
			return err
		}
	}
	return nil
}

// copyValue sets a flag to the value of another of its type.
func copyValue(to, from *pflag.Flag) error {
	values, several := from.Value.(pflag.SliceValue)
	if own, ok := to.Value.(pflag.SliceValue); ok && several {
		return own.Replace(values.GetSlice()) // Set can't parse the String of a slice value
	}
	return to.Value.Set(from.Value.String())
}

func isPodKind(word string) bool {
	return slices.Contains([]string{"pod", "pods", "po"}, strings.ToLower(word))
}

func isNodeKind(word string) bool {
	return slices.Contains([]string{"node", "nodes", "no"}, strings.ToLower(word))
}

func (a *app) noSuchKind(cmd *cobra.Command, kind string) error {
	if text, ok := show.OtherKind(kind, a.inCluster(cmd)); ok {
		return &usageError{fmt.Errorf("deckhand knows no objects of the kind %q: %s", kind, text)}
	}
	return usagef(cmd, "unknown kind %q: there are pods, events, images and nodes", kind)
}
