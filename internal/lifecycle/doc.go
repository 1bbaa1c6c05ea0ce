// Package lifecycle decides what to do for one pod. It is a pure function. Its input is the desired pod, the runtime's
// state of it, evictions, the results of earlier actions and the time; its output is actions, the API status, the pod's
// waits and the next wake-up time. It does no I/O, reads no clock, takes no lock and uses no client (a test in
// internal/archtest enforces that), so that every race is a test and every decision can be replayed and explained.
//
// State that must outlive the agent is on the containers (attempt, back-off, resources) or in pod.Checkpoint, which the
// action SaveCheckpoint writes; the rest of Memory may be lost at a restart.
//
// # One decision
//
// Decide applies results, determines which containers are started and ready, and does one of four things: stop, finish,
// terminate or run. For a pod that runs it goes through the same steps each time: restart of all containers, admission,
// preparation, containers that have to end, sandbox, ephemeral containers, init containers and sidecars, main
// containers, resize, clean-up of ended containers.
//
// # Admission
//
// AdmitPod is an action, requested before PreparePod. Package resources/allocation carries it out and uses package
// admission for the decision. Package admission is pure: its input is the facts of the node, the resources in use and
// the pod; its output is admitted, rejected (with the API's reason and message) or a wait. A rejected pod is Failed,
// has no container statuses, and nothing is created for it. A rejection holds for one generation: an edited pod gets a
// new worker, unless its UID says that every version is the same pod (Desired.UIDIsIdentity).
//
// # Verdicts
//
// A package may find that a pod has to end although its source still has it (storage limits, preemption). It doesn't
// stop anything itself, but returns a pod.PodTermination. Combine merges several terminations into one, with the reason
// of the earliest termination and the earliest end. The pod is terminated, becomes Failed and isn't started again.
//
// # Exits and restarts
//
// Package restart decides whether a container that ended is started again: by its restartPolicyRules, its own policy,
// then the pod's. The first restart has no delay, the second 10 s, doubling up to 300 s. The delays begin again after
// 10 minutes of running, or after an edit of image or resources. The attempt number and the back-off are annotations of
// the instance, so that both survive the agent.
//
// A container that is stopped for another image or other resources is started again under every restart policy. The
// same holds for a container whose image is edited while it ends for another reason. With restartPolicy OnFailure, a
// container that was stopped for a failed probe or hook counts as failed, even with exit code 0. Both facts are on disk
// (Checkpoint.Renew, Checkpoint.Failed) before the container is stopped. The status never shows such a container as
// Terminated if its exit code alone would make the end final, because API servers refuse a later start.
//
// # Termination
//
// Containers end through termination.Terminator: preStop hooks run inside the grace period, then the stop signal is
// sent, then SIGKILL. The time of SIGKILL only moves to earlier times, but is at least 2 s after the signal. Sidecars
// end last, in reverse order. All containers of a pod share one grace period (Terminator.AllBy): when it is over, all
// containers that still run are stopped at once. A pod ends as a whole once its last main container has to end for
// good.
//
// # Terminal phases
//
// A terminal phase is reported once nothing of the pod runs and the next agent would report the same, together with its
// reason and DisruptionTarget. The status of the source (Desired.Pod.Status) is binding: a pod that is terminal there
// is ended and never started, and other components' conditions stay. If Desired.RequiresTerminalPhase is set, a pod
// that is removed before its containers ran becomes Failed.
//
// # Deletion and removal
//
// A deletion (Desired.Deletion) stops a pod that its source still has. An earlier end replaces a later one, by the
// agent's own clock; the earliest is in the checkpoint (EndBy), so that no restart lengthens a grace period. At the end
// the final status is saved and reported, volumes and cgroup are released, and the report says Gone: the API object may
// be removed. The worker, status, containers and logs stay until the source has removed the pod. A pod whose object
// vanishes earlier gets 2 s and no final status.
//
// Once Input.Stop is set, nothing is started any more: preparations are cancelled, containers end, sandboxes and
// records are removed, and the pod's directory last, so that a later agent finds an unfinished clean-up.
//
// # Missing objects and resources
//
// A failed action names the object (Failure.Awaits) or the resources (Failure.Wait) that it waits for. When these
// change, the pod's worker is woken, and package plan requests the action again at once. If nothing reports a change,
// Failure.NotBefore is the time of the next try.
package lifecycle
