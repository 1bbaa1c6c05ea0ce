// Package host is the wing of this machine: its properties, and the files that the agent keeps on it. It has no code of
// its own.
//
// The packages: capacity (CPU, memory, huge pages, and how much of them pods may use), kernel (sysctls, AppArmor, the
// kernel's log of OOM kills), process (OOM score, open files, the service manager), pluginwatch (plugins that register
// in plugins_registry), rootdir (the directories below the root directory), checkpoint (records with a version and a
// checksum, one per file or many in a log), lockfile.
//
// The wing doesn't decide anything about pods, and doesn't change a machine beyond the settings that kernel names.
package host
