// Package worker runs one goroutine per pod. A worker is woken without data, reads the desired pod and its observed
// state, calls the core (package lifecycle) and carries out the decision. It waits for nothing but wake-ups: actions
// run beside it, so a slow pull never keeps a pod from being stopped, and a slow pod delays no other.
//
// # Workers
//
// Pool starts a worker for a new UID, passes an edited pod to its worker, and ends the workers of pods that nobody
// wants. A pod whose name is still in use by another one waits. Pods that are only in the runtime, in the pods
// directory or in claims get a worker without a desired pod, which removes them. A new worker reads the records of an
// earlier agent: the checkpoint, and restart counts from logs (worker.adopt).
//
// A step of a worker: read (results, observed state, probes, allocation), decide (lifecycle.Decide), act, report. It is
// the one writer of its pod's status, checkpoint and lifecycle.Memory; the last may be lost. A kind of termination from
// outside the core (node pressure, shutdown) is one more PodTerminator.
//
// # Actions
//
// worker.launch runs each action on a goroutine of its own, at most one per target. Package executor carries it out.
// Six sandboxes and containers are made or started at once, pods that are nearly complete first; six more places are
// for stopping dead sandboxes, so that a stop that hangs delays no start (kit/gate). The result of a call is in the
// observed state before Executor.Do returns, so that the next decision never sees the state from before it.
//
// A worker is woken when an object that its pod waits for changes (Waker.WakeAwaiting, by key), when resources are
// freed, and when an image arrives.
//
// # The flight recorder
//
// Every decision goes to package journal with its inputs, as a transcript: `deckhand why`, `deckhand journal` and
// `deckhand replay` read it. The golden tests of package lifecycle have the same format.
package worker
