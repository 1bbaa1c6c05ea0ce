// Package translate turns pods into the CRI's configurations, and what the runtime answers into
// the nouns of internal/pod. It knows what a pod says about seccomp, AppArmor, SELinux and
// sysctls in the runtime's terms, and lists the fields that this build doesn't act on. It is
// pure: no I/O, no clock.
//
// Names, labels, annotations and log paths are those of the kubelet, so that crictl, log
// shippers and a kubelet that ran here before (or will run after) understand them.
package translate

import (
	"path/filepath"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	kubelettypes "k8s.io/kubelet/pkg/types"

	"github.com/deckhand-node/deckhand/internal/runtime/logs/layout"
)

// Annotations of a container as the kubelet writes them.
const (
	AnnotationHash                     = "io.kubernetes.container.hash"
	AnnotationRestartCount             = "io.kubernetes.container.restartCount"
	AnnotationTerminationMessagePath   = "io.kubernetes.container.terminationMessagePath"
	AnnotationTerminationMessagePolicy = "io.kubernetes.container.terminationMessagePolicy"
	AnnotationPorts                    = "io.kubernetes.container.ports"
	AnnotationPreStopHandler           = "io.kubernetes.container.preStopHandler"
	AnnotationTerminationGrace         = "io.kubernetes.pod.terminationGracePeriod"
	AnnotationDeletionGrace            = "io.kubernetes.pod.deletionGracePeriod"
)

// Annotations of a container that only deckhand writes and reads.
const (
	// AnnotationBackoff is how long a restart waits after this instance ended, as a Go duration.
	AnnotationBackoff = "deckhand.io/restart-backoff"
	// AnnotationBoot is the boot of the host in which this instance was made: after another boot, AnnotationBackoff
	// doesn't count.
	AnnotationBoot = "deckhand.io/boot"
	// AnnotationImage is the image as the pod asked for it: runtimes report a resolved one instead.
	AnnotationImage = "deckhand.io/image"
	// AnnotationResources are the requests and limits it was made with, as JSON; not written if there are none.
	AnnotationResources = "deckhand.io/resources"
	// AnnotationPodLimits are the limits of the pod as a whole at that time, as JSON; not written if there are none.
	AnnotationPodLimits = "deckhand.io/pod-limits"
	// AnnotationRedacted is on containers of which Redacted is true, with an empty value.
	AnnotationRedacted = "deckhand.io/redacted"
	// annotationRedacted is what AnnotationRedacted was before: containers that run may still have it.
	annotationRedacted = "deckhand.io/hushed"
)

// Identity names a pod among those of all times.
type Identity struct {
	UID       types.UID
	Name      string
	Namespace string
}

// LogDirectory is the directory of a pod's container logs under podLogsDir, which
// the CRI calls the sandbox's log directory.
func LogDirectory(podLogsDir string, id Identity) string {
	return filepath.Join(podLogsDir, layout.PodDirectory(id.Namespace, id.Name, id.UID))
}

func identityOf(p *v1.Pod) Identity {
	return Identity{UID: p.UID, Name: p.Name, Namespace: p.Namespace}
}

// podLabels are the labels by which a sandbox or container is known to belong to a pod.
func podLabels(p *v1.Pod) map[string]string {
	return map[string]string{
		kubelettypes.KubernetesPodNameLabel:      p.Name,
		kubelettypes.KubernetesPodNamespaceLabel: p.Namespace,
		kubelettypes.KubernetesPodUIDLabel:       string(p.UID),
	}
}

func identityFrom(labels map[string]string) (Identity, bool) {
	id := Identity{
		UID:       types.UID(labels[kubelettypes.KubernetesPodUIDLabel]),
		Name:      labels[kubelettypes.KubernetesPodNameLabel],
		Namespace: labels[kubelettypes.KubernetesPodNamespaceLabel],
	}
	return id, id.UID != "" && id.Name != "" && id.Namespace != ""
}
