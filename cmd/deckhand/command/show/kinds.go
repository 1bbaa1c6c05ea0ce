package show

import (
	"slices"
	"strings"
)

// otherKinds has kinds of objects that an agent doesn't know, and what does the work.
var otherKinds = []struct{ words, text string }{
	{"namespace namespaces ns", "`deckhand pods -A` shows the namespaces of pods"},
	{"service services svc endpoints ep ingress ingresses ing networkpolicy networkpolicies netpol",
		"nothing routes their addresses here: pods have addresses of their own (`deckhand pods`), and hostPorts"},
	{"configmap configmaps cm secret secrets serviceaccount serviceaccounts sa pv persistentvolume persistentvolumes pvc persistentvolumeclaim persistentvolumeclaims",
		"it is in a manifest: `deckhand pods -o wide` says where those are (ORIGIN), `deckhand why` which are missing"},
	{"deployment deployments deploy replicaset replicasets rs statefulset statefulsets sts daemonset daemonsets ds job jobs cronjob cronjobs cj",
		"an agent has pods, and not what makes them: `deckhand pods` lists them, and with -l app=NAME those with a label; in a cluster ask kubectl"},
}

// OtherKind says what does the work of a kind of objects that an agent doesn't know; false for words that are no such kind.
func OtherKind(word string) (text string, ok bool) {
	for _, k := range otherKinds {
		if slices.Contains(strings.Fields(k.words), strings.ToLower(word)) {
			return k.text, true
		}
	}
	return "", false
}
