// Package transcript is the flight recorder of a pod's decisions: the inputs of each decision, its output and its
// reasons, as text. People can read it, tests can use it as a golden file, and the core can replay it. The package is
// pure: it does no I/O, reads no clock and starts no goroutine.
//
// A file is a txtar archive: a comment, the pod (pod.yaml, and pod-2.yaml and so on for its later versions) and the
// section transcript, which consists of steps:
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
// Lines with > are inputs. The first line of a step is its time. A time with `at` begins a segment; the first step of a
// segment contains all inputs. Any other time is an offset from the segment's begin, as are all other times in the
// segment. The further steps of a segment contain only the changes since the previous step: the changed fields of a
// sandbox, a container, a probe and all other inputs, and `> gone container web2` for a container that is gone. A
// result names its action; the result of a failed action has `failed REASON "message"`. The actions under way follow
// from the `do` lines and the results, and the memory follows from the decisions. If they don't (the agent was
// restarted, or a segment begins), `> inflight` lines and a `> memory` line contain them. `> incomplete "why"` begins a
// segment that can be read but not replayed.
//
// Indented lines are the decision: cancel, do, event, because, status, wake in, done. The status is a summary; the
// lines below it, indented further, are its differences from the previous status. Probes are also written as
// differences. Package words defines the syntax of values. No character in a file controls the terminal that shows it:
// such characters are escaped.
package transcript
