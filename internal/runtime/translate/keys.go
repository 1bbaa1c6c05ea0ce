// Package translate converts pods to CRI configurations, and the runtime's answers to the types of internal/pod. It
// translates a pod's seccomp, AppArmor, SELinux and sysctl fields for the runtime, and lists the fields that this
// build doesn't support. It is pure: no I/O, no clock.
//
// Names, labels, annotations and log paths are those of the kubelet, so that crictl, log shippers and a kubelet
// that ran here before (or will run later) understand them.
package translate

import (
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	kubelettypes "k8s.io/kubelet/pkg/types"

	"github.com/deckhand-node/deckhand/internal/runtime/logs/layout"
)

// Annotations of a container that the kubelet also writes.
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
	// AnnotationBackoff is how long a restart waits after this instance has ended, as a Go duration.
	AnnotationBackoff = "deckhand.io/restart-backoff"
	// AnnotationBoot is the boot ID of the host when this instance was created: after another boot,
	// AnnotationBackoff doesn't count.
	AnnotationBoot = "deckhand.io/boot"
	// AnnotationImage is the image in the pod's spec: runtimes report a resolved one instead.
	AnnotationImage = "deckhand.io/image"
	// AnnotationResources has the requests and limits at the container's creation, as JSON; missing if there are
	// none.
	AnnotationResources = "deckhand.io/resources"
	// AnnotationPodLimits has the pod-level limits at the container's creation, as JSON; missing if there are none.
	AnnotationPodLimits = "deckhand.io/pod-limits"
	// AnnotationSidecar is the position of a sidecar among the pod's init containers, from 1; missing for other
	// containers.
	AnnotationSidecar = "deckhand.io/sidecar"
	// AnnotationRedacted marks containers for which Redacted is true. Its value is empty.
	AnnotationRedacted = "deckhand.io/redacted"
	// annotationRedacted is the key that earlier versions used for AnnotationRedacted: running containers may still
	// have it.
	annotationRedacted = "deckhand.io/hushed"
)

// Identity identifies a pod, and distinguishes it from later pods of the same name.
type Identity = layout.Pod

func identityOf(p *v1.Pod) Identity {
	return Identity{UID: p.UID, Name: p.Name, Namespace: p.Namespace}
}

// podLabels returns the labels that identify the pod of a sandbox or container.
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
