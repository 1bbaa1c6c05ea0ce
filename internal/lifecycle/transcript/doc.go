// Package transcript is the flight recorder of a pod's decisions: what each was
// made from, what came out of it and why, as text that a person can read, that
// can be checked in as a test, and that the core can be run through again. It is
// pure: no I/O, no clock, no goroutine.
//
// A file is a txtar archive: a comment, the pod (pod.yaml, and pod-2.yaml and so
// on for its later versions) and the section transcript, which is made of steps:
//
//	# a comment, which belongs to the step below
//	> at 2026-01-01T00:00:00Z
//	> pod pod.yaml
//	> node hostIPs=[192.0.2.1] runtimeName=containerd
//	> sandbox sb1 state=Ready createdAt=-2s ips=[10.0.0.1]
//	  do CreateContainer web sandbox=sb1 attempt=0 imageRef=sha256:1f2e (it never ran)
//	  because container web: is being created [since=+0s]
//	  status Pending web=ContainerCreating
//	    condition Ready status=False since=+0s reason=ContainersNotReady
//	> +1.25s
//	> container web2 name=web sandbox=sb1 state=Created createdAt=+1.2s
//	> result CreateContainer web id=web2 at=+1.2s
//	  ...
//
// Lines with > are inputs. The first of a step is the time: with `at` a segment
// begins, which says everything there is to know; otherwise it is the distance
// from the segment's begin, as are all other times, and the step says what has
// become other since the step before: of a sandbox, a container, a probe and of
// everything else the fields that changed, and `> gone container web2` of what
// isn't there any more. A result names the action that it is of; one that failed
// says `failed REASON "message"`. What is under way follows from the `do` lines
// and the results, and what is remembered from the decisions; where that isn't so
// (the agent was restarted, a segment begins), `> inflight` lines and a `> memory`
// line say so. `> incomplete "why"` begins a segment that can only be read.
//
// Indented lines are the decision: cancel, do, event, because, status, wake in,
// done. Of the status there is a summary, and indented further what differs from
// the status before; likewise of the probes. How values look is in package words. Nothing
// in a file steers the terminal that it is shown on: such characters are escaped.
package transcript
