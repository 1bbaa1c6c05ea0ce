package translate

import (
	"slices"
	"strconv"
	"time"

	v1 "k8s.io/api/core/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
	kubelettypes "k8s.io/kubelet/pkg/types"

	"github.com/deckhand-node/deckhand/internal/pod"
)

// Sandbox reads a sandbox from a list. Addresses and the use of the host's
// network aren't in lists. ok is false for one that is not a pod's in the
// kubelet's sense: that is somebody else's and must be left alone.
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

// SandboxStatus reads a sandbox's status; ok is as with Sandbox.
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

// Container reads a container from a list. Start, end, log path, Told and the
// termination message's file aren't in lists; Made isn't read from them, for lists
// are long. ok is as with Sandbox.
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

// ContainerStatus reads a container's status; ok is as with Sandbox. The CRI
// doesn't report the sandbox with it: the caller has to know.
func ContainerStatus(st *runtimeapi.ContainerStatus, sandboxID, boot string) (id Identity, out pod.Container, ok bool) {
	return ContainerUpdate(st, sandboxID, boot, nil)
}

// ContainerUpdate is ContainerStatus for a container that may be known already:
// what doesn't change is taken over from known, or shared with it, instead of being
// read again. known may be nil or another container.
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
	out.ExitCode = st.GetExitCode()
	out.Reason, out.Message = pod.Reason(st.GetReason()), runtimeMessage(st)
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

// labelled reads what labels, annotations and metadata say. Annotations that
// can't be read count as not written.
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
		out.Backoff = 0 // the host went down with it, which says nothing of the container
	}
	if g, err := strconv.ParseInt(annotations[AnnotationTerminationGrace], 10, 64); err == nil && g >= 0 {
		out.Grace = &g
	}
	if out.Image == "" {
		out.Image = image.GetUserSpecifiedImage()
	}
	if out.Image == "" {
		out.Image = image.GetImage()
	}
	return id, out, true
}

// documentedBackoff is the wait after an instance of the kubelet's, which records none: Kubernetes documents that it
// doubles from 10 s to 300 s with each restart.
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

// nanoTime is zero for times that haven't come, and for the nonsense that
// containerd reports as the creation time of a sandbox it has just taken down.
func nanoTime(ns int64) time.Time {
	if ns <= 0 {
		return time.Time{}
	}
	return time.Unix(0, ns)
}
