// Package runtime is the wing of the container runtime, its sandboxes and containers. It has no code of its own.
//
// The packages: cri is the connection; translate turns pods into CRI configurations and back; observed is the cache of
// the runtime's sandboxes and containers, from events and lists; health, dns, userns, logs and containergc do what
// their names say; embedded runs containerd as a child process; engine has the list of kinds of runtimes, and their
// features beside the CRI. memcri and critest are for tests.
//
// observed is the one writer of the observed state. It merges readings by rank and time, so that a snapshot only moves
// forward, and wakes the pod's worker when it has changed. It subscribes to events before it lists; no worker starts
// before the first list, so that no pod is started twice.
//
// # The embedded containerd
//
// Package embedded starts containerd in a session of its own, and adopts one that was started with the same
// configuration (found by package child, held by a pidfd). Stopping the agent stops neither containerd nor pods. If
// containerd ends, it is started again after 100 ms, doubling up to 30 s, while shims and containers run on; one that
// doesn't answer is killed (embedded/watch.go has the rules). After a reboot of the host sandboxes are made again.
// embedded.inUse decides whether something runs, because the boot ID alone can't: it differs in containers and on
// machines restored from a snapshot.
//
// Package cni owns the embedded pods' network on the host: bridge, addresses, rules and forwarding. Its Keeper restores
// parts that another program removes.
//
// # OOM kills
//
// The runtime reports the OOM kill of a container (OOMKilled): the shim reads memory.events (cgroup v1:
// memory.oom_control) and reports it before the exit. The agent reads neither file: the cgroup is gone when the agent
// learns of the exit, and the pod's cgroup doesn't say which container it was.
package runtime
