// Package runtime is the wing of the container runtime, its sandboxes and containers. It has no code of its own.
//
// The packages: cri is the connection to the runtime; translate converts pods to CRI configurations, and CRI statuses
// to the types of internal/pod; observed is the cache of the runtime's sandboxes and containers, fed by events and
// lists; health tracks whether the runtime is ready; dns computes the resolver configuration of pods, userns allocates
// the IDs of user namespaces; logs reads, rotates and removes container logs; containergc limits the number of ended
// containers; embedded runs containerd as a child process; engine has the list of supported kinds of runtimes, and
// their functions beyond the CRI. memcri and critest are for tests.
//
// Only observed writes the observed state. It merges readings by rank and time, so that the state in a snapshot only
// moves forward, and it wakes the pod's worker when the snapshot has changed. It subscribes to events before it lists.
// No worker starts before the first list is complete, so that no pod is started twice.
//
// # The embedded containerd
//
// Package embedded starts containerd in a session of its own, or adopts a containerd that was started with the same
// configuration (package child finds it, and holds a pidfd of it). A stop of the agent stops neither containerd nor
// pods. If containerd ends, it is restarted after 100 ms, doubling up to 30 s; shims and containers continue meanwhile.
// A containerd that doesn't answer is killed (see embedded/watch.go for the rules). After a reboot of the host,
// sandboxes are created again. embedded.inUse determines whether containers are running. A comparison of boot IDs isn't
// enough for that: the boot ID also changes in containers, and on machines restored from a snapshot.
//
// Package cni owns the pod network of the embedded runtime on the host: bridge, addresses, netfilter rules and
// forwarding. Its Keeper restores parts that another program removes.
//
// # OOM kills
//
// The runtime reports the OOM kill of a container (OOMKilled): the shim reads memory.events (cgroup v1:
// memory.oom_control), and reports the kill before the exit. The agent can't use these files: the container's cgroup no
// longer exists when the agent learns of the exit, and the files of the pod's cgroup don't show in which container the
// kill was.
package runtime
