package command

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/deckhand-node/deckhand/cmd/deckhand/command/show"
)

// A hint says what does the work of words that kubectl, crictl or podman know, and deckhand doesn't.
type hint struct {
	words string
	text  string
}

// elsewhere has commands that aren't here.
var elsewhere = []hint{
	{"apply create replace diff", "put the manifest into the manifest directory (staticPodPath in `deckhand config view`), or run it in the foreground: `deckhand run FILE`"},
	{"play kube", "run a manifest in the foreground: `deckhand run FILE`"},
	{"delete rm rmp kill", "remove the pod's manifest, and it is stopped: `deckhand pods -o wide` says where that is (ORIGIN); `deckhand stop POD` stops it for the time being"},
	{"edit patch set label annotate scale autoscale rollout expose", "edit the pod's manifest: `deckhand pods -o wide` says where that is (ORIGIN)"},
	{"port proxy", "`deckhand port-forward POD PORT` carries connections to a pod; without it use the pod's address (`deckhand pods`), or a hostPort in its manifest"},
	{"stats statsp", "`deckhand top pods` shows what pods use, `deckhand top node` what the node does"},
	{"explain", "`deckhand config docs FIELD` explains settings, `deckhand why POD` a pod"},
	{"validate", "`deckhand config check FILE` checks a configuration; `deckhand pods` lists what is wrong with manifests"},
	{"inspect inspectp", "`deckhand pods -o yaml POD` prints all there is to know of a pod"},
	{"inspecti", "`deckhand images inspect IMAGE` prints all there is to know of an image"},
	{"info cluster-info", "`deckhand version` shows agent, node and runtime, `deckhand config view` the configuration"},
	{"api-resources api-versions", "the manifests that deckhand reads are in `deckhand pods -o wide` (ORIGIN); it has no API server"},
	{"volume volumes secret network networks", "pods' volumes and objects are in manifests: `deckhand pods -o wide` says where those are (ORIGIN); all pods are on one network"},
	{"import", "`deckhand images import FILE` reads archives of images"},
	{"system", "`deckhand pods` and `deckhand images` list what there is, `deckhand images prune` frees space, `deckhand version` shows agent and runtime"},
	{"generate quadlet", "`deckhand pods -o yaml POD` prints a pod as a manifest"},
	{"healthcheck auth pause unpause rename", "a pod is as its manifest says: `deckhand why POD` says how it does, `deckhand stop POD` and `deckhand start POD` keep it from running"},
	{"cordon uncordon drain taint", "that is done to a node of a cluster, with kubectl; `deckhand down` stops all pods of this machine"},
	{"build push tag login logout save commit history search", "images are built elsewhere: `deckhand images pull NAME` fetches them, `deckhand images import FILE` reads archives"},
}

// flagsElsewhere has flags that commands don't have, each as COMMAND/FLAG.
var flagsElsewhere = []hint{
	{"run/image run/d run/detach run/it run/i run/t run/p run/v run/e run/env run/rm run/name run/publish run/volume run/restart", "what runs is in a manifest: `deckhand run FILE`"},
	{"debug/copy-to debug/set-image debug/share-processes debug/same-node debug/replace", "a copy of a pod is another manifest, from `deckhand pods -o yaml POD`: `deckhand run FILE` runs it in the foreground"},
	{"cp/retries", "nothing is lost on this machine's socket: without it"},
	{"port-forward/pod-running-timeout exec/pod-running-timeout attach/pod-running-timeout", "`deckhand why POD` says when the pod runs, and ends with exit code 0 once it is ready"},
	{"list/q list/quiet images/q images/quiet", "`-o jsonpath={.items[*].id}` prints IDs alone"},
	{"load/i load/input", "the file needs no flag: `deckhand load FILE`"},
}

func find(list []hint, word string) (text string, ok bool) {
	i := slices.IndexFunc(list, func(h hint) bool { return slices.Contains(strings.Fields(h.words), strings.ToLower(word)) })
	if i < 0 {
		return "", false
	}
	return list[i].text, true
}

// signposts are commands that say what does the work of those that aren't here, whatever
// flags they get. Nobody sees them before they are typed.
func signposts() []*cobra.Command {
	var list []*cobra.Command
	for _, h := range elsewhere {
		for _, word := range strings.Fields(h.words) {
			list = append(list, &cobra.Command{
				Use: word, Hidden: true, DisableFlagParsing: true,
				RunE: func(*cobra.Command, []string) error {
					return &usageError{fmt.Errorf("deckhand has no command %q: %s", word, h.text)}
				},
			})
		}
	}
	return list
}

// known are commands that users of kubectl, crictl and podman find by another name or in another place.
func (a *app) known() []*cobra.Command {
	rmi, pull, load := a.removeImageCommand(), a.pullImageCommand(), a.importImageCommand()
	rmi.Use, pull.Use, load.Use = "rmi IMAGE...", "pull IMAGE...", "load FILE..."
	for _, c := range []*cobra.Command{rmi, pull, load} {
		c.Hidden, c.Aliases = true, nil
	}
	return []*cobra.Command{rmi, pull, load}
}

// getCommand lists what the other commands list, in kubectl's words.
func (a *app) getCommand() *cobra.Command {
	cmd := a.podsCommand() // for `get pod/web`
	run := cmd.RunE
	cmd.Use, cmd.Aliases = "get pods|events|images|nodes [NAME...]", nil
	cmd.Short, cmd.Long = "List pods, events, images or nodes, in kubectl's words", "List pods, events, images or nodes, in kubectl's words. Several kinds are written as pods,events."
	cmd.Example = `  deckhand get pods -A
  deckhand get pod web -o yaml
  deckhand get pods,events`
	cmd.ValidArgsFunction = cobra.FixedCompletions([]string{"pods", "events", "images", "nodes"}, cobra.ShellCompDirectiveNoFileComp)
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
				return noSuchKind(cmd, kind)
			}
		}
		return run(cmd, args)
	}
	pods, events, images, nodes := a.podsCommand(), a.eventsCommand(), a.listImagesCommand(), a.nodesCommand()
	pods.Aliases = []string{"pod", "po", "all"}
	images.Use, images.Aliases = "images", []string{"image"}
	for _, c := range []*cobra.Command{pods, events, images, nodes} {
		c.GroupID, c.Hidden = "", true // it is described where it is at home
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
			return noSuchKind(cmd, kind)
		}
		lists = append(lists, list)
	}
	for i, list := range lists {
		if i > 0 {
			fmt.Fprintln(textTo(cmd))
		}
		// Flags that a kind doesn't know are for the others.
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

// copyValue gives a flag the value of another of its type.
func copyValue(to, from *pflag.Flag) error {
	values, several := from.Value.(pflag.SliceValue)
	if own, ok := to.Value.(pflag.SliceValue); ok && several {
		return own.Replace(values.GetSlice()) // whose String isn't what Set reads
	}
	return to.Value.Set(from.Value.String())
}

func isPodKind(word string) bool {
	return slices.Contains([]string{"pod", "pods", "po"}, strings.ToLower(word))
}

func isNodeKind(word string) bool {
	return slices.Contains([]string{"node", "nodes", "no"}, strings.ToLower(word))
}

func noSuchKind(cmd *cobra.Command, kind string) error {
	if text, ok := show.OtherKind(kind); ok {
		return &usageError{fmt.Errorf("deckhand knows no objects of the kind %q: %s", kind, text)}
	}
	return usagef(cmd, "unknown kind %q: there are pods, events, images and nodes", kind)
}
