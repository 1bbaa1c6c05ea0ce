// Package worker runs one goroutine per pod. A worker is woken without data, reads the desired pod and its observed
// state, calls the core (package lifecycle) and carries out the decision. It waits only for wake-ups: actions run in
// other goroutines, so that a slow pull never delays the stop of its pod, and a slow pod delays no other pod.
//
// # Workers
//
// Pool starts a worker for a new UID, passes an edited pod to its worker, and ends the workers of pods that no source
// has any more. A pod waits while another pod still uses its name. Pods that are only in the runtime, in the pods
// directory or in claims get a worker without a desired pod, which removes them. A new worker reads the records of an
// earlier agent: the checkpoint, and restart counts from logs (worker.adopt).
//
// A step of a worker: read (results, observed state, probes, allocation), decide (lifecycle.Decide), act, report. Only
// the worker writes its pod's status, checkpoint and lifecycle.Memory; the Memory may be lost. A further reason to end
// pods from outside the core (such as node pressure or shutdown) needs a further PodTerminator.
//
// # Actions
//
// worker.launch runs each action on a goroutine of its own, at most one per target. Package executor carries it out. At
// most six sandboxes and containers are created or started at once, and pods that are nearly complete go first. At most
// six more dead sandboxes are stopped at once, so that a stop that hangs delays no start (kit/gate). The result of a
// call is in the observed state before Executor.Do returns, so that the next decision never sees the state from before
// the call.
//
// A worker is woken when an object that its pod waits for changes (Waker.WakeAwaiting, by key), when resources are
// freed, and when an image arrives.
//
// # The flight recorder
//
// Every decision goes to package journal with its inputs, as a transcript: `deckhand why`, `deckhand journal` and
// `deckhand replay` read it. The golden tests of package lifecycle have the same format.
package worker
