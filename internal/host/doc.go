// Package host is the wing of the host machine: its properties, and the files that the agent keeps on it. It has no
// code of its own.
//
// The packages: capacity (CPU, memory, huge pages, and how much of them pods may use), kernel (sysctls, AppArmor, OOM
// kills in the kernel's log, listening sockets), alarm (events of the kernel about memory), clock (steps of the wall
// clock), process (the agent's OOM score, limit of open files and idle threads, notifications to the service
// manager), pluginwatch (plugins that register in plugins_registry), rootdir (the directories below the root
// directory), checkpoint (records with a version and a checksum, one per file or many in a log), lockfile (only one
// agent per root directory).
//
// The wing makes no decisions about pods. The only settings of the machine that it changes are the sysctls of
// package kernel.
package host
