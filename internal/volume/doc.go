// Package volume defines the types of volumes: the source of a volume, and the requests to plugins and their results.
// Each kind of volume is a plugin (packages plugins and objectfiles); package manager decides which volumes are needed
// and calls the plugins.
//
// manager is the one writer of pods' directories and of the mounts in them, binder the one of the binding of claims to
// PersistentVolumes. Neither decides when a pod starts or ends.
//
// # How a volume is made
//
// manager.Prepare starts one operation per volume, on goroutines of package operations: a file system that hangs holds
// up the pods that use it and no others. A plugin leaves a volume that is ready as it is, so a restarted agent adopts
// the volumes that are mounted.
//
// manager.Run gets the names of changed objects (object.Set.Changed) and pods (wake.Keyed), checks the volumes that are
// made from these, and rewrites those that differ. A volume made from something that expires (object.Token) is checked
// when the token has to be renewed; if the renewal fails, the old content stays. An update leaves the files that
// containers were created with as a subPath (volume.Request.Held), because the kernel can't mount a name that is gone.
//
// manager.Clean removes the rest of a pod's directory. It follows no link and enters no mount.
package volume
