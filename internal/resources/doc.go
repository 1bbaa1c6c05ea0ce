// Package resources groups the packages about the resources of pods, from CPU to disk: their limits and their use. It
// has no code of its own.
//
// The packages: allocation is the ledger of admitted pods and their resources; cgroup makes control groups and sets
// their limits; cgroup/tree names and finds control groups, for packages that only read; cgroup/counters reads the
// kernel's counters of a group; devices is the manager of device plugins; storagelimits finds pods that use too much
// local storage; stats samples the use of pods and of the node; pressure finds pods to end when the node runs short of
// a resource.
//
// Package cgroup is the only writer of the QoS groups and the pods' groups, and is the only one that moves the agent's
// and the host's processes; runc makes the containers' groups. storagelimits and pressure don't end pods: the pod's
// worker reads the eviction (Manager.Termination) and ends the pod.
//
// # Admission
//
// allocation.Manager decides which pods are admitted; the executor never rejects a pod. It adds up the resources that
// pods hold (requests, number of pods, host ports), first those of adopted pods, for which nothing is decided again: a
// pod that runs or has an allocation stays, whatever the state of the node is now. When any pod requests admission,
// lifecycle/admission decides on all undecided pods: waiting pods first, then by creationTimestamp and name.
//
// A pod that has to wait stays Pending, keeps its turn and is woken when resources become free. A pod of higher
// priority preempts others: these are terminated, and the preempting pod waits until they have ended. The resources of
// an ended pod are free once its cgroup is gone, also after a restart of the agent. A UID that a manifest sets is
// recorded on disk before admission first decides on the pod.
//
// # Assigners
//
// Exclusive resources come last: each Assigner in allocation.Config.Assigners assigns its part to all containers of the
// pod before the pod counts as admitted. If an Assigner refuses or has to wait, the ones before it release their
// assignments. Package devices chooses devices, calls the plugins (Allocate) and saves the assignment in the kubelet's
// file. A pod whose plugin isn't registered waits for it, at most --await-device-plugins (5 minutes). Package assign
// chooses CPUs for containers that have them to themselves, and moves all others to the rest.
package resources
