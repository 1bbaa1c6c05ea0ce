package show

import (
	"cmp"
	"slices"
	"strings"
)

// Hint says what does the work of words that other tools know and deckhand doesn't.
type Hint struct {
	// Words are separated by spaces.
	Words string
	// Alone is the text on a machine alone, Cluster the one on a node of a cluster; empty if they are the same.
	Alone, Cluster string
}

// Text returns the hint's text on a node of a cluster, or on a machine alone.
func (h *Hint) Text(cluster bool) string {
	if cluster {
		return cmp.Or(h.Cluster, h.Alone)
	}
	return h.Alone
}

// FindHint returns the text of the hint that has the word; false if none has.
func FindHint(list []Hint, word string, cluster bool) (text string, ok bool) {
	i := slices.IndexFunc(list, func(h Hint) bool {
		return slices.Contains(strings.Fields(h.Words), strings.ToLower(word))
	})
	if i < 0 {
		return "", false
	}
	return list[i].Text(cluster), true
}

// OtherKinds has kinds of objects that an agent doesn't know.
var OtherKinds = []Hint{
	{
		Words:   "namespace namespaces ns",
		Alone:   "`deckhand pods -A` shows the namespaces of pods",
		Cluster: "`deckhand pods -A` shows the namespaces of this node's pods, `kubectl get namespaces` all",
	},
	{
		Words: "service services svc endpoints ep ingress ingresses ing networkpolicy networkpolicies netpol",
		Alone: "nothing routes their addresses here: pods have addresses of their own (`deckhand pods`), and " +
			"hostPorts",
		Cluster: "the API server has them: `kubectl get services -A`",
	},
	{
		Words: "configmap configmaps cm secret secrets serviceaccount serviceaccounts sa pv persistentvolume " +
			"persistentvolumes pvc persistentvolumeclaim persistentvolumeclaims",
		Alone: "it is in a manifest: `deckhand pods -o wide` says where those are (ORIGIN), `deckhand why` which " +
			"are missing",
		Cluster: "the API server has it: `kubectl get configmaps,secrets,pvc -n NAMESPACE`; `deckhand why` says which " +
			"are missing",
	},
	{
		Words: "deployment deployments deploy replicaset replicasets rs statefulset statefulsets sts daemonset " +
			"daemonsets ds job jobs cronjob cronjobs cj",
		Alone: "an agent has pods, and not what makes them: `deckhand pods` lists them, and with -l app=NAME those " +
			"with a label",
		Cluster: "an agent has pods, and not what makes them, which `kubectl get " +
			"deployments,statefulsets,daemonsets,jobs -A` lists; `deckhand pods -l app=NAME` lists the pods of " +
			"this node with a label",
	},
}

// OtherKind says what does the work of a kind of objects that an agent doesn't know; false for words that are no such
// kind.
func OtherKind(word string, cluster bool) (text string, ok bool) {
	return FindHint(OtherKinds, word, cluster)
}
