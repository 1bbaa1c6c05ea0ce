package apistatus

import (
	"fmt"
	"strings"
	"testing"

	v1 "k8s.io/api/core/v1"
)

func TestLimitMessages(t *testing.T) {
	for n, want := range map[int]int{1: 5000, 2: 5000, 3: 4096, 6: 2048, 12: 1024, 24: 512} {
		t.Run(fmt.Sprint(n, " containers"), func(t *testing.T) {
			st := &v1.PodStatus{}
			told := &v1.ContainerStateTerminated{Message: strings.Repeat("x", 5000), ExitCode: 3}
			for i := range n {
				list := []*[]v1.ContainerStatus{&st.ContainerStatuses, &st.InitContainerStatuses, &st.EphemeralContainerStatuses}[i%3]
				*list = append(*list, v1.ContainerStatus{State: v1.ContainerState{Terminated: told}, LastTerminationState: v1.ContainerState{Terminated: told}})
			}
			limitMessages(st)
			for _, list := range [][]v1.ContainerStatus{st.InitContainerStatuses, st.ContainerStatuses, st.EphemeralContainerStatuses} {
				for i := range list {
					now, before := list[i].State.Terminated, list[i].LastTerminationState.Terminated
					if len(now.Message) != want || len(before.Message) != want || now.ExitCode != 3 {
						t.Errorf("%d and %d bytes, exit code %d; want %d bytes each", len(now.Message), len(before.Message), now.ExitCode, want)
					}
				}
			}
			if len(told.Message) != 5000 {
				t.Error("what it was given was changed")
			}
		})
	}
}

func TestLimitMessagesLeavesNoHalfCharacter(t *testing.T) {
	st := &v1.PodStatus{ContainerStatuses: []v1.ContainerStatus{{}, {State: v1.ContainerState{Terminated: &v1.ContainerStateTerminated{Message: "x" + strings.Repeat("€", 3000)}}}}}
	limitMessages(st)
	if got, want := st.ContainerStatuses[1].State.Terminated.Message, "x"+strings.Repeat("€", 2047); got != want {
		t.Errorf("%d bytes ending in %q, want %d", len(got), got[len(got)-4:], len(want))
	}
	limitMessages(&v1.PodStatus{}) // no containers, nothing to divide by
}
