// Package pod holds the types that every other package shares: the pod that should run, the runtime's state of it, the
// actions on it and their results. It also has functions that read a pod's spec and metadata, including the downward
// API's values. It is pure, and imports API types only.
//
// Everything here is a value that is passed from one owner to another. Pointers inside (such as Desired.Pod) are
// read-only once passed on: to change a value, make a copy.
//
// API reasons (Reason...) and the codes of waits (Wait) are constants here. No code compares sentences: package
// pod/explain turns codes into words where a person reads them.
//
// # Versions of a pod
//
// Desired.Base is the content hash of the version that the pod was created from; metadata.generation counts the edits
// that were applied in place since. Desired.Replaces says why a new version is another pod: its worker starts when the
// old pod's worker has ended.
//
// # Objects that pods refer to
//
// ConfigMaps, Secrets, claims and other objects are found through an object.View (package pod/object). The executor
// chooses a pod's View by Desired.Source and passes it to the code that acts for the pod. Pods from manifests see the
// objects that manifests define, once all local sources have reported, whether an API server answers or not; pods of an
// API server see that server's objects. No pod sees an object of the other side.
//
// object.Unknown means that nobody can say yet whether an object exists. It isn't "not found": the pod waits, and no
// optional volume is emptied.
package pod
