// Package volume defines the types of volumes: the source of a volume, and the requests to plugins and their results.
// Each kind of volume is a plugin (packages plugins, objectfiles and csi); package manager decides which volumes are
// needed and calls the plugins.
//
// Only package manager writes to pods' directories and makes mounts in them. Only package binder binds claims to
// PersistentVolumes. Neither decides when a pod starts or ends.
//
// # How a volume is made
//
// manager.Prepare starts one operation per volume, on goroutines of package operations: a file system that hangs delays
// only the pods that use it. A plugin doesn't change a volume that is ready, so a restarted agent adopts the volumes
// that are mounted.
//
// manager.Run gets the names of changed objects (object.Set.Changed) and pods (wake.Keyed), checks the volumes whose
// content comes from these objects, and rewrites the volumes that are outdated. A volume with a token, which expires
// (object.Token), is checked when the token has to be renewed; if the renewal fails, the old content stays. An update
// keeps the files that containers mount as a subPath (volume.Request.Held), because the kernel can't mount a file whose
// name was removed.
//
// manager.Clean removes a pod's volumes and the rest of its directory. It follows no symbolic link and enters no mount.
package volume
