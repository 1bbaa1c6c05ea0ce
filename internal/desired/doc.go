// Package desired is the set of pods that should run on this node, and of the objects that they refer to by name.
//
// Each source (a directory, a URL, a user's command, an API server; one package each, and one SourceKind in a list)
// reports its whole state to a Merger whenever the state changes. The Merger builds one immutable Set from the reports
// and wakes its subscribers; the wake-up carries no data. Diff computes the changes between two sets. If several
// sources claim the same pod name, one claim wins: see precedence.
//
// # From a text to pods
//
// A local source passes a text to a manifeststore.Keeper, and the Keeper passes it to a reader.Reader: the text is
// decoded strictly (pod/manifest), a static pod gets the UID that the kubelet would give it (reader/uid.go), defaults
// are filled in and the pod is validated (pod/spec). If the text is bad, the Keeper keeps the last good pods, marks
// them as stale and reports a pod.Problem. It does the same if the directory was replaced by another one (Keeper.Place)
// that has no good manifest.
//
// A new version of a pod is compared with the old one (reader.InPlace). A change of images, labels or resources, or
// another ephemeral container, makes the next generation of the same pod; any other difference makes another pod. In a
// cluster every edit makes another pod (reader.Rules.Recreate), and a manifest that was deleted and written again
// restarts its pod. Keeper.remade adopts pods that a kubelet created from a changed text while the kubelet ran on the
// node.
//
// # Pods stopped by a user
//
// Stops stores the names of the pods that a user has stopped. The Merger puts such pods into Set.Stopped instead of
// Set.Pods. Their workers then stop them as if their manifests had been deleted, but still have their specs, also after
// a restart of the agent. `deckhand down` stops all pods; when worker.Stopper finds none left, the agent exits with a
// special exit code and shuts down containerd. If no agent runs, `down` starts one, with the recorded configuration
// (the install record) and the last agent's sources (manifeststore.Recall).
//
// # Containers added by a user
//
// Additions stores the ephemeral containers that a user has added (`deckhand debug`). The Merger adds them to their
// pods, so that the core sees an edit in place; source and manifest don't change. A container is validated like one
// from a manifest, the node has to admit the pod with it, and it is on disk before the pod's worker is woken. It
// belongs to one incarnation of the pod (UID, Base and the time when the pod was first seen), and is dropped with it. A
// pod that was stopped loses its added containers before it starts again (Stops.Starting).
package desired
