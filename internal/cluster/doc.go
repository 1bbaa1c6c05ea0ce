// Package cluster is the wing of this node's part in a cluster: the facts about the node, and its side of an API
// server. It has no code of its own; package agent/cluster puts the parts together where there is a kubeconfig.
//
// The packages:
//
//   - apiclient is the one client of the API server: kubeconfig, rates and connections for each class of calls,
//     watches, bounds of answers, meaning of errors and time of retries;
//   - certificates requests the certificates that the cluster issues for this node, and renews them;
//   - nodefacts holds addresses, labels, taints and resources of the node, with one writer for each fact;
//   - nodeobject registers the Node object and patches its status; it also keeps the lease;
//   - podobject watches the pods of this node, writes their statuses and removes the objects of pods that have ended;
//   - clusterobjects finds the objects that these pods refer to, and service account tokens;
//   - mirror keeps a mirror pod for each static pod;
//   - eventsink sends events;
//   - lastknown keeps on disk the last answers of the API server, for a node that restarts without it.
//
// No other package writes to the API server. No pod waits for an event or a mirror pod.
//
// # Pods of an API server
//
// podobject.Cache holds the newest version of each pod, from its watch and from the answers to writes. Package
// desired/apisource reports these pods and passes on the same pointer as long as nothing differs that the node acts on:
// a status that this node wrote causes no report, merge or decision when the watch returns it. The pods aren't
// defaulted or validated again; values that would harm the node are refused, and the status says Failed (Set.Refused).
// If a manifest has the same name or UID, the manifest's pod wins.
//
// After an outage, or if the node's lease is another object or has an older version than before, all pods are listed
// again, and the list is accepted even if its version is lower: the store may have been restored from a backup, or
// lost.
//
// podobject.Publisher compares the workers' statuses with the API server's. The function podobject.plan gets the time
// as an argument and makes no calls. It isn't pure: it records in its argument history since when a status differs.
// It returns at most one call: a patch of this node's fields that differ (ended containers and readiness immediately,
// other details together a little later), or the removal of the object, once the pod is Gone and its terminal phase
// is there.
//
// # Without the API server
//
// apisource gives all pods to lastknown before it reports them, clusterobjects the objects that these pods asked for,
// and nodeobject the parts of the node that say where pods may run. lastknown appends changes to one log file, at
// most once a second with one sync, and rewrites that file when it has grown. Nothing in it expires.
//
// An agent may be started while the server is away, or has sent nothing for a second. It runs these stored pods:
// apisource marks its report as Pending, so that no pod is removed because it isn't in the report. Secrets and tokens
// are on disk only if an administrator has configured a key; each is encrypted so that it can be decrypted only under
// its own name. The first complete list replaces the stored pods. An empty list from a server where the Node has
// another UID is the exception: apisource keeps the pods for --hold-pods-for (5 minutes), and then until the server
// confirms that it still has none.
//
// # Objects of the API server
//
// nodeobject reports the attachable volumes that the node uses in separate calls, because another node may wait for
// such a volume. It also publishes as facts which volumes are attached.
//
// clusterobjects reads an object by name when the first pod needs it, and follows it until the last one has ended.
// The executor waits some seconds for a first answer (Finder.Await) before it reports a failure, and calls
// Finder.Forget when a pod's volumes or the pod are gone; until then everything that the pod asked for is kept up to
// date.
package cluster
