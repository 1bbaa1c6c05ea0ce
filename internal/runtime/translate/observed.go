package translate

import (
	"cmp"
	"regexp"
	"slices"
	"strconv"
	"time"

	v1 "k8s.io/api/core/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
	kubelettypes "k8s.io/kubelet/pkg/types"

	"github.com/deckhand-node/deckhand/internal/host/process"
	"github.com/deckhand-node/deckhand/internal/kit/atomicfile"
	"github.com/deckhand-node/deckhand/internal/kit/errtext"
	"github.com/deckhand-node/deckhand/internal/pod"
)

// Sandbox converts a sandbox of a list. Lists don't include its addresses and whether it uses the host's network.
// ok is false for a sandbox without the kubelet's labels: it isn't a pod's and must be left alone.
func Sandbox(sb *runtimeapi.PodSandbox) (id Identity, out pod.Sandbox, ok bool) {
	id, ok = identityFrom(sb.GetLabels())
	if !ok || sb.GetId() == "" {
		return Identity{}, pod.Sandbox{}, false
	}
	return id, pod.Sandbox{
		ID:        sb.GetId(),
		State:     sandboxState(sb.GetState()),
		Attempt:   sb.GetMetadata().GetAttempt(),
		CreatedAt: nanoTime(sb.GetCreatedAt()),
	}, true
}

// SandboxStatus converts a sandbox's status; see Sandbox for ok.
func SandboxStatus(st *runtimeapi.PodSandboxStatus) (id Identity, out pod.Sandbox, ok bool) {
	id, ok = identityFrom(st.GetLabels())
	if !ok || st.GetId() == "" {
		return Identity{}, pod.Sandbox{}, false
	}
	out = pod.Sandbox{
		ID:          st.GetId(),
		State:       sandboxState(st.GetState()),
		Attempt:     st.GetMetadata().GetAttempt(),
		CreatedAt:   nanoTime(st.GetCreatedAt()),
		HostNetwork: st.GetLinux().GetNamespaces().GetOptions().GetNetwork() == runtimeapi.NamespaceMode_NODE,
	}
	if ip := st.GetNetwork().GetIp(); ip != "" {
		out.IPs = append(out.IPs, ip)
	}
	for _, ip := range st.GetNetwork().GetAdditionalIps() {
		if ip.GetIp() != "" && !slices.Contains(out.IPs, ip.GetIp()) {
			out.IPs = append(out.IPs, ip.GetIp())
		}
	}
	return id, out, true
}

// Container converts a container of a list. Lists don't include the times of its start and end, log path,
// RuntimeReported and the path of the termination message; CreatedWith isn't parsed, because lists are long. See
// Sandbox for ok.
func Container(c *runtimeapi.Container, boot string) (id Identity, out pod.Container, ok bool) {
	id, out, ok = labelled(c.GetId(), c.GetLabels(), c.GetAnnotations(), c.GetMetadata(), c.GetImage(), boot)
	if !ok {
		return id, out, false
	}
	out.SandboxID = c.GetPodSandboxId()
	out.State = containerState(c.GetState())
	out.CreatedAt = nanoTime(c.GetCreatedAt())
	out.ImageRef = c.GetImageRef()
	return id, out, true
}

// ContainerStatus converts a container's status; see Sandbox for ok. The CRI's status doesn't include the sandbox's
// ID, so the caller has to pass it.
func ContainerStatus(st *runtimeapi.ContainerStatus, sandboxID, boot string) (id Identity, out pod.Container, ok bool) {
	return ContainerUpdate(st, sandboxID, boot, nil)
}

// ContainerUpdate is ContainerStatus for a container that may be in the cache: known is the cached container. Unchanged
// values are copied from known or shared with it, instead of being parsed again. known is ignored if it is nil or
// another container.
func ContainerUpdate(st *runtimeapi.ContainerStatus, sandboxID, boot string,
	known *pod.Container) (id Identity, out pod.Container, ok bool) {
	id, out, ok = labelled(st.GetId(), st.GetLabels(), st.GetAnnotations(), st.GetMetadata(), st.GetImage(), boot)
	if !ok {
		return id, out, false
	}
	if known == nil || known.ID != out.ID {
		known = &pod.Container{}
	}
	out.CreatedWith, out.RuntimeReported = known.CreatedWith, runtimeReported(st, known.RuntimeReported)
	if out.CreatedWith == nil {
		out.CreatedWith = createdWith(st.GetAnnotations())
	}
	out.SandboxID = sandboxID
	out.State = containerState(st.GetState())
	out.CreatedAt = nanoTime(st.GetCreatedAt())
	out.StartedAt = nanoTime(st.GetStartedAt())
	out.FinishedAt = nanoTime(st.GetFinishedAt())
	if !out.FinishedAt.IsZero() && out.FinishedAt.Before(out.StartedAt) {
		// The program ended before the runtime noted its start, or the clock was set back while it ran.
		out.StartedAt = out.FinishedAt
	}
	out.ExitCode = st.GetExitCode()
	out.Reason, out.Message = pod.Reason(st.GetReason()), runtimeMessage(st)
	out.StartAborted = out.State == pod.ContainerExited && startAborted(st)
	out.DiskFull = out.Reason == pod.ReasonStartError && atomicfile.SaysDiskFull(out.Message)
	out.ImageRef = st.GetImageRef()
	out.LogPath = st.GetLogPath()
	if inside := st.GetAnnotations()[AnnotationTerminationMessagePath]; inside != "" {
		for _, m := range st.GetMounts() {
			if m.GetContainerPath() == inside {
				out.TerminationMessagePath = m.GetHostPath()
			}
		}
	}
	return id, out, true
}

// canceled matches the end of the message of an aborted start, with the class that containerd may append. A path in the
// middle of a message may be a pod's: `mkdir /context canceled: file exists`.
var canceled = regexp.MustCompile(`\bcontext canceled(: (unknown|canceled))?$`)

// startAborted reports whether an exited container's start was aborted, or no process could be created for it:
// containerd then ends it with this reason and such a message.
func startAborted(st *runtimeapi.ContainerStatus) bool {
	return st.GetStartedAt() == 0 && st.GetReason() == string(pod.ReasonStartError) &&
		(canceled.MatchString(errtext.Unquoted(st.GetMessage())) || process.Exhausted(st.GetMessage()))
}

// labelled converts labels, annotations and metadata. Invalid annotations count as missing.
func labelled(cid string, labels, annotations map[string]string, meta *runtimeapi.ContainerMetadata,
	image *runtimeapi.ImageSpec, boot string) (Identity, pod.Container, bool) {
	id, ok := identityFrom(labels)
	name := labels[kubelettypes.KubernetesContainerNameLabel]
	if !ok || name == "" || cid == "" {
		return Identity{}, pod.Container{}, false
	}
	out := pod.Container{
		ID:      cid,
		Name:    name,
		Attempt: int(meta.GetAttempt()),
		Hash:    annotations[AnnotationHash],
		Image:   annotations[AnnotationImage],
	}
	if annotations[AnnotationTerminationMessagePolicy] == string(v1.TerminationMessageFallbackToLogsOnError) {
		out.TerminationMessagePolicy = v1.TerminationMessageFallbackToLogsOnError
	}
	if n, err := strconv.ParseInt(annotations[AnnotationRestartCount], 10, 32); err == nil && n >= 0 {
		out.Attempt = int(n)
	}
	if text := annotations[AnnotationBackoff]; text != "" {
		if d, err := time.ParseDuration(text); err == nil && d >= 0 {
			out.Backoff = d
		}
	} else if out.Image == "" {
		out.Backoff = documentedBackoff(out.Attempt)
	}
	if made := annotations[AnnotationBoot]; made != "" && boot != "" && made != boot {
		out.Backoff = 0 // the instance ended with the host, so the end isn't the container's failure
	}
	if g, err := strconv.ParseInt(annotations[AnnotationTerminationGrace], 10, 64); err == nil && g >= 0 {
		out.Grace = &g
	}
	out.Image = cmp.Or(out.Image, image.GetUserSpecifiedImage(), image.GetImage())
	return id, out, true
}

// documentedBackoff returns the back-off after an instance of the kubelet, which doesn't record it: according to
// Kubernetes' documentation, it doubles from 10 s to 300 s with each restart.
func documentedBackoff(attempt int) time.Duration {
	const first, top = 10 * time.Second, 300 * time.Second
	if attempt == 0 {
		return 0
	}
	return min(first<<min(attempt-1, 5), top)
}

func sandboxState(s runtimeapi.PodSandboxState) pod.SandboxState {
	if s == runtimeapi.PodSandboxState_SANDBOX_READY {
		return pod.SandboxReady
	}
	return pod.SandboxNotReady
}

func containerState(s runtimeapi.ContainerState) pod.ContainerState {
	switch s {
	case runtimeapi.ContainerState_CONTAINER_CREATED:
		return pod.ContainerCreated
	case runtimeapi.ContainerState_CONTAINER_RUNNING:
		return pod.ContainerRunning
	case runtimeapi.ContainerState_CONTAINER_EXITED:
		return pod.ContainerExited
	default:
		return pod.ContainerUnknown
	}
}

// nanoTime returns zero for times that aren't set, and for the invalid creation time that containerd reports for a
// sandbox that it has just torn down.
func nanoTime(ns int64) time.Time {
	if ns <= 0 {
		return time.Time{}
	}
	return time.Unix(0, ns)
}
