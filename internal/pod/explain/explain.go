// Package explain describes the reasons for which a pod waits, and suggests remedies. Only this package writes such
// sentences, for `deckhand pods`, `deckhand why` and transcripts. No code compares the sentences: it compares the
// codes of package pod.
package explain

import (
	"fmt"
	"strings"

	v1 "k8s.io/api/core/v1"

	"github.com/deckhand-node/deckhand/internal/pod"
)

// Wait describes a wait, without the container's name and without times.
func Wait(w *pod.Wait) string {
	switch w.Code {
	case pod.WaitRuntime:
		return "waiting for container runtime: " + w.Message
	case pod.WaitPredecessor:
		return "waiting for the earlier pod of this name to end"
	case pod.WaitDecision:
		return "about to be processed"
	case pod.WaitAdmission:
		return "waiting for " + w.Message
	case pod.WaitRejected:
		return "rejected by the node; nothing was created for it"
	case pod.WaitAction:
		return action(w)
	case pod.WaitRetry:
		return retry(w)
	case pod.WaitBackOff:
		return Ended(w) + "; back-off before it is started again"
	case pod.WaitSandboxBackOff:
		return "back-off before the next sandbox: the last one ended soon after it was made"
	case pod.WaitTarget:
		return "waiting for its target container " + w.Other + " to run"
	case pod.WaitInit:
		return "init container is running"
	case pod.WaitProbe, pod.WaitProbeFailed:
		return "is running but not ready: its " + probe(w)
	case pod.WaitGate:
		return "waiting for readiness gate " + w.Gate
	case pod.WaitEnded:
		return fmt.Sprintf("has ended with code %d and isn't started again; the others run on", w.ExitCode)
	case pod.WaitStop:
		return "is being stopped: " + w.Message
	case pod.WaitStopOutlived:
		return "is being stopped: " + w.Message + "; that is over, but the stop had begun"
	case pod.WaitOldInstance:
		return "an instance in an older sandbox is being stopped"
	case pod.WaitUnusable:
		return "its last instance is being removed: it never ran and can't be used any more"
	case pod.WaitUnknown:
		return "its last instance is being stopped: the runtime doesn't know whether it still runs"
	case pod.WaitAbortedStart:
		return "its start was aborted, it is created again"
	case pod.WaitSandboxGone:
		return "its sandbox is gone, the remaining containers are being stopped"
	case pod.WaitRestartAll:
		return fmt.Sprintf("container %s exited with code %d, all containers are restarted", w.Other, w.ExitCode)
	case pod.WaitResize:
		return "is being resized"
	case pod.WaitPodStop:
		if w.Action != "" {
			return fmt.Sprintf("stopping (%s), waiting for %s to end", w.Message, w.Action)
		}
		return fmt.Sprintf("stopping (%s)", w.Message)
	case pod.WaitStopped:
		return "a person has stopped it"
	case pod.WaitObjectGone:
		return "has ended, its object is still there"
	}
	return string(w.Code) // a code that a newer agent has recorded
}

// action describes the action that a pod waits for.
func action(w *pod.Wait) string {
	switch w.Action {
	case pod.AdmitPod:
		return "is about to be admitted"
	case pod.PreparePod:
		return "directories, cgroup and volumes are being prepared"
	case pod.CreateSandbox:
		return "the sandbox is being created"
	case pod.StopSandbox:
		return "the old sandbox is being taken down"
	case pod.RemoveSandbox:
		return "the sandbox is being removed"
	case pod.EnsureImage:
		if progress := Pull(w.Pull); progress != "" {
			return "waiting for image " + w.Image + ": " + progress
		}
		return "waiting for image " + w.Image
	case pod.CreateContainer:
		return "is being created"
	case pod.StartContainer:
		return "is being started"
	case pod.PostStart:
		return "its postStart hook is running"
	case pod.RemoveContainer:
		return "its containers are being removed"
	case pod.ReleaseVolumes:
		return "its volumes are being unmounted"
	case pod.CleanPod:
		return "its directories, cgroup and logs are being removed"
	case pod.SaveCheckpoint:
		return "its checkpoint is being written"
	}
	return "waiting for " + string(w.Action) + " to end"
}

// probe describes a probe that hasn't succeeded.
func probe(w *pod.Wait) string {
	switch {
	case w.Message == "":
		return fmt.Sprintf("%s probe hasn't succeeded yet", w.Probe)
	case w.Attempts > 1:
		return fmt.Sprintf("%s probe fails (%d times in a row): %s", w.Probe, w.Attempts, w.Message)
	}
	return fmt.Sprintf("%s probe fails: %s", w.Probe, w.Message)
}

// Ended returns the reason for which a container that will be restarted has ended: "failed its liveness probe".
func Ended(w *pod.Wait) string {
	text, message := "", w.Message
	switch {
	case w.Cause == pod.StopProbe:
		text = fmt.Sprintf("failed its %s probe", w.Probe)
	case w.Cause == pod.StopPostStartHook:
		text = "failed its postStart hook"
	case w.Reason == pod.ReasonOOMKilled:
		text, message = "ran out of memory (OOMKilled)", ""
	case w.Reason == pod.ReasonStartError:
		text = "couldn't be started"
	default:
		return fmt.Sprintf("ended with exit code %d", w.ExitCode)
	}
	if message != "" {
		text += ": " + message
	}
	return text
}

// retry describes the failure because of which an action is retried.
func retry(w *pod.Wait) string {
	text := fmt.Sprintf("%s: %s", w.Reason, w.Message)
	switch w.For {
	case pod.WaitForProcesses:
		return "waiting for processes: " + text
	case pod.WaitForCPUs:
		return "waiting for " + w.Message
	}
	if w.Action == pod.Allocate {
		return "a resize waits: " + text
	}
	if w.Object.Name != "" {
		return "waiting for " + w.Object.String() + ": " + text
	}
	return text
}

// Pull describes the progress of a pull; empty before it is queued or starts. It contains no times, so that it
// changes only with the progress.
func Pull(p pod.Pull) string {
	switch {
	case p.Queued > 0:
		return fmt.Sprintf("number %d in the queue", p.Queued)
	case p.Layers > 0:
		return fmt.Sprintf("%d of %d layers, %s of %s", p.LayersDone, p.Layers, megabytes(p.BytesDone),
			megabytes(p.Bytes))
	case p.Begun:
		return "being pulled"
	}
	return ""
}

func megabytes(bytes int64) string { return fmt.Sprintf("%.1f MB", float64(bytes)/1e6) }

// Named returns the description of a wait by Wait, with the container's name in front if a container waits.
func Named(w *pod.Wait) string {
	if w.Container == "" {
		return Wait(w)
	}
	return "container " + w.Container + ": " + Wait(w)
}

// Advice returns the remedy for a wait of the pod p; empty if nothing needs to be done. The text depends on whether p
// comes from a manifest or from an API server.
func Advice(w *pod.Wait, p *v1.Pod) string {
	words := atManifest
	if pod.SourceOf(p) == pod.SourceAPI {
		words = atAPIServer
	}
	return words.Replace(advise(w))
}

// atManifest and atAPIServer replace the placeholders in the texts below, such as {spec}, for a pod from a manifest
// and for a pod of an API server.
var (
	atManifest = strings.NewReplacer("{spec}", "in the manifest", "{from}", "from the manifest", "{define}", "define",
		"{in}", "in a manifest", "{again}", "remove the manifest and add it again", "{end}", "`deckhand stop POD`",
		"{restart}", "`deckhand restart` runs it again at once")
	atAPIServer = strings.NewReplacer("{spec}",
		"in the pod's spec, or in the template of its controller (Deployment, Job, ...)", "{from}",
		"from the pod's spec, or from the template of its controller (Deployment, Job, ...)", "{define}", "create",
		"{in}", "in the cluster (kubectl)",
		"{again}", "delete this one (kubectl delete pod): its controller (Deployment, Job, ...) creates another",
		"{end}", "`kubectl delete pod`", "{restart}", "its controller (Deployment, Job, ...) creates another one")
)

// FreeDisk returns the advice for a full disk, for a node of a cluster or for a machine without a cluster.
func FreeDisk(cluster bool) string {
	if cluster {
		return atAPIServer.Replace(freeDisk)
	}
	return atManifest.Replace(freeDisk)
}

const (
	freeDisk = "free space or inodes there: `deckhand images prune` removes unused images, {end} ends a pod and " +
		"removes its files; or remove other files"
	tryAgain = ". This is tried again by itself. If no disk is full (`df`, `df -i`), see in `dmesg` why one can't be " +
		"written"
	freeProcesses = "no more processes or threads can be created: {end} ends a pod that runs many of them; or raise " +
		"the limit that is reached: TasksMax of the service, pids.max of its control group, or the sysctls " +
		"kernel.pid_max and kernel.threads-max. This is tried again by itself"
)

func advise(w *pod.Wait) string {
	switch w.Code {
	case pod.WaitBackOff:
		return adviceOnEnd(w)
	case pod.WaitProbe, pod.WaitProbeFailed:
		return "see what it says: `deckhand events` (the probe), `deckhand logs` (the container)"
	case pod.WaitSandboxBackOff:
		return "check the runtime and its network: the runtime's log says why sandboxes end"
	case pod.WaitRetry:
		return adviceOnFailure(w)
	case pod.WaitRejected:
		return adviceFor(w.Reason)
	case pod.WaitStopped:
		return "`deckhand start` runs it again"
	case pod.WaitAdmission:
		if w.For == pod.WaitForPressure {
			return "free what the node is short of: the pod is admitted as soon as the pressure ends"
		}
	}
	return ""
}

func adviceOnEnd(w *pod.Wait) string {
	const logs = "`deckhand logs --previous`"
	switch {
	case w.Cause == pod.StopProbe:
		return fmt.Sprintf("see in %s what kept it from answering; if nothing did, give the %s probe more time "+
			"{spec}, or correct it", logs, w.Probe)
	case w.Cause == pod.StopPostStartHook:
		return "correct its postStart hook {spec}, or its dependencies"
	case w.Reason == pod.ReasonOOMKilled:
		return "raise its memory limit {spec}, or have it use less"
	case w.Disk:
		return freeDisk + tryAgain
	case w.Reason == pod.ReasonStartError:
		return startAdvice
	case w.ExitCode == 126 || w.ExitCode == 127:
		return "a shell ends so where a command isn't there (127) or can't be executed (126): see " + logs +
			", and correct command and args {spec}"
	}
	return "see why it ended: " + logs
}

func adviceOnFailure(w *pod.Wait) string {
	switch {
	case w.Object.Name != "" && w.Object.Kind == "PersistentVolumeClaim": // or a PersistentVolume is
		return fmt.Sprintf("{define} %s {in}, change it, or {define} a PersistentVolume that fits: this is tried "+
			"again as soon as that is done", w.Object)
	case w.Object.Kind == pod.CSIDriver:
		return "start the driver on this node, or look into its logs: this is tried again as soon as it registers"
	case w.Object.Kind == "VolumeAttachment":
		return fmt.Sprintf("a controller of the cluster attaches the volume: see `kubectl describe volumeattachment "+
			"%s` and the log of the driver's controller; this is tried again as soon as the attachment changes",
			w.Object.Name)
	case w.Object.Kind == "TokenRequest": // manifests can't define it
		return "it is asked for again as soon as the API server answers"
	case w.Object.Name != "":
		return fmt.Sprintf("{define} %s {in}, or change it: this is tried again as soon as that is done", w.Object)
	case w.Action == pod.SaveCheckpoint:
		return "free space on the disk under the root directory, or fix it"
	case w.Disk:
		return freeDisk + tryAgain
	case w.For == pod.WaitForProcesses:
		return freeProcesses
	}
	return adviceFor(w.Reason)
}

// adviceFor returns the remedy for a failure by its reason.
func adviceFor(r pod.Reason) string {
	if strings.HasPrefix(string(r), string(pod.ReasonOutOf)) {
		return "request less {spec}; or stop other pods, {again}"
	}
	return advice[r]
}

// advice maps the reason of a failure to its remedy.
var advice = map[pod.Reason]string{
	pod.ReasonErrImagePull:     pullAdvice,
	pod.ReasonImagePullBackOff: pullAdvice,
	pod.ReasonErrImageNeverPull: "put an archive of the image into the images directory, or set " +
		"another imagePullPolicy",
	pod.ReasonInvalidImageName: "correct the image's name {spec}",
	pod.ReasonCreateContainerConfigError: "correct the field that the message names {spec}, or create the object it " +
		"refers to",
	pod.ReasonCreateContainerError: "the runtime refused the container: check command, mounts and " +
		"security context {spec}, and that its disk isn't full (`df`, `df -i`)",
	pod.ReasonRunContainerError: startAdvice,
	pod.ReasonFailedMount: "correct the object that the message names: the volume {spec}, or its source on this " +
		"node",
	pod.ReasonFailedUnmount: "stop the process that still uses the volume that the message names: it is tried again " +
		"automatically",
	pod.ReasonFailedCreatePodSandBox: "check the runtime and its network: `deckhand pods`, the " +
		"runtime's log",
	pod.ReasonSysctlForbidden:                      fieldsAdvice,
	pod.ReasonAppArmor:                             fieldsAdvice,
	pod.ReasonSupplementalGroupsPolicyNotSupported: fieldsAdvice,
	pod.ReasonFeatureUnsupported:                   fieldsAdvice,
	pod.ReasonNodeAffinity:                         labelsAdvice,
	pod.ReasonNodeName: "the API server sent this node a pod that isn't its own, whose spec.nodeName is another " +
		"node's: check proxies between this node and the API server, and its authorization",
	pod.ReasonOS:        labelsAdvice,
	pod.ReasonOSLabel:   labelsAdvice,
	pod.ReasonNodePorts: "use other host ports {spec}; or stop the pod that has them, {again}",
	pod.ReasonSMTAlignmentError: "request a multiple of the CPUs per core {spec}; or stop other pods that have cores " +
		"to themselves, {again}",
	pod.ReasonEvicted: "free some of the resource that the message names (`deckhand node -o wide`), or " +
		"request as much of it {spec} as the pod uses; if the message names a limit, raise it; {restart}",
	pod.ReasonPreempting:   "a pod of higher priority took its resources: stop other pods, {again}",
	v1.PodReasonDeferred:   "shrink or remove another pod, or request less",
	v1.PodReasonInfeasible: "request no more than the node has",
}

const (
	startAdvice  = "check that its command exists in the image and may be executed; it has no log, as it never ran"
	fieldsAdvice = "remove these fields {from}, or run the pod on another node"
	labelsAdvice = "compare nodeSelector, nodeAffinity and os {spec} with this node: its labels are " +
		"kubernetes.io/hostname, os and arch, and those of --node-labels"
)

const pullAdvice = "check the image's name and tag, and that the registry can be reached and authorizes this node; " +
	"`deckhand images` lists this node's images"
