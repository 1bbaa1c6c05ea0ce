package show

import (
	"cmp"
	"slices"
	"strings"
)

// Hint describes the replacement of commands, flags or kinds of other tools that deckhand doesn't have.
type Hint struct {
	// Words are separated by spaces.
	Words string
	// Alone is the text for a standalone machine, Cluster the text for a node of a cluster; Cluster is empty if they
	// are the same.
	Alone, Cluster string
}

// Text returns the hint's text for a node of a cluster, or for a standalone machine.
func (h *Hint) Text(cluster bool) string {
	if cluster {
		return cmp.Or(h.Cluster, h.Alone)
	}
	return h.Alone
}

// FindHint returns the text of the hint with this word; false if there is none.
func FindHint(list []Hint, word string, cluster bool) (text string, ok bool) {
	i := slices.IndexFunc(list, func(h Hint) bool {
		return slices.Contains(strings.Fields(h.Words), strings.ToLower(word))
	})
	if i < 0 {
		return "", false
	}
	return list[i].Text(cluster), true
}

// OtherKinds has kinds of objects that an agent doesn't manage.
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
		Alone: "an agent manages only pods, not their controllers: `deckhand pods` lists them, and with -l app=NAME " +
			"those with a label",
		Cluster: "an agent manages only pods; `kubectl get deployments,statefulsets,daemonsets,jobs -A` lists their " +
			"controllers; `deckhand pods -l app=NAME` lists the pods of this node with a label",
	},
}

// OtherKind returns the hint for a kind of object that an agent doesn't manage; false for other words.
func OtherKind(word string, cluster bool) (text string, ok bool) {
	return FindHint(OtherKinds, word, cluster)
}
