package apistatus

import (
	"strings"

	v1 "k8s.io/api/core/v1"
)

// podMessageBytes limits the termination messages of a pod in total (v1.Container.TerminationMessagePath).
const podMessageBytes = 12 << 10

// limitMessages limits each termination message to an equal part of the pod's limit. This is the kubelet's rule, see
// "Determine the Reason for Pod Failure" in the Kubernetes documentation. A message of a previous instance has the same
// limit, but doesn't count for the total.
func limitMessages(st *v1.PodStatus) {
	lists := [][]v1.ContainerStatus{st.InitContainerStatuses, st.ContainerStatuses, st.EphemeralContainerStatuses}
	n := 0
	for _, list := range lists {
		n += len(list)
	}
	for _, list := range lists {
		for i := range list {
			s := &list[i]
			s.State.Terminated = shortened(s.State.Terminated, podMessageBytes/n)
			s.LastTerminationState.Terminated = shortened(s.LastTerminationState.Terminated, podMessageBytes/n)
		}
	}
}

// shortened is t with a message of at most limit bytes. It copies t, which may be shared.
func shortened(t *v1.ContainerStateTerminated, limit int) *v1.ContainerStateTerminated {
	if t == nil || len(t.Message) <= limit {
		return t
	}
	short := *t
	short.Message = strings.ToValidUTF8(t.Message[:limit], "") // drops a character that was cut in two
	return &short
}
