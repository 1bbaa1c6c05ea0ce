// Package pod holds the types that every other package shares: the pod that should run, the runtime's state of it, the
// actions on it and their results. It also has functions that read a pod's spec and metadata, including the downward
// API's values. It is pure, and imports API types only.
//
// Everything here is a value that is passed from one owner to another. Pointers inside (such as Desired.Pod) are
// read-only once passed on: to change a value, make a copy.
//
// API reasons (Reason...) and the codes of waits (Wait) are constants here. No code compares sentences: package
// pod/explain turns codes into sentences for users.
//
// # Versions of a pod
//
// Desired.Base is the content hash of the version that the pod was created from; metadata.generation counts the later
// edits that were applied in place. Desired.Replaces says why a new version isn't an edit of the old pod but another
// pod: the new pod's worker starts when the old pod's worker has ended.
//
// # Objects that pods refer to
//
// ConfigMaps, Secrets, claims and other objects are found through an object.View (package pod/object). The executor
// chooses a pod's View by Desired.Source and passes it to the code that acts for the pod. Pods from manifests see the
// objects that manifests define, once all local sources have reported, whether an API server answers or not; pods of an
// API server see that server's objects. Neither kind of pod sees the other kind's objects.
//
// object.Unknown means that it isn't certain yet whether an object exists. It differs from "not found": the pod waits
// for the object, even if its volume is marked as optional.
package pod
