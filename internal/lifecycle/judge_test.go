package lifecycle_test

import (
	"fmt"
	"strconv"
	"strings"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"

	"github.com/deckhand-node/deckhand/internal/lifecycle/admission"
	"github.com/deckhand-node/deckhand/internal/pod"
)

// judge is what a golden transcript's node has and what others hold there.
type judge struct {
	node     admission.Node
	capacity v1.ResourceRequirements
	others   []admission.Held
}

func newJudge() judge {
	j := judge{node: admission.Node{Name: "node1", OS: "linux", Labels: map[string]string{v1.LabelOSStable: "linux"}, Version: "v1.36.3"}}
	if err := j.change([]string{"cpu=4", "memory=8Gi", "pods=110"}); err != nil {
		panic(err)
	}
	return j
}

func (j *judge) change(args []string) error {
	for _, a := range args {
		key, value, _ := strings.Cut(a, "=")
		if label, ok := strings.CutPrefix(key, "label:"); ok {
			j.node.Labels[label] = value
			continue
		}
		if key == "strict-groups" {
			j.node.SupplementalGroupsPolicy = ptr.To(value == "true")
			continue
		}
		if err := setResources(&j.capacity, []string{"request:" + a}); err != nil {
			return err
		}
	}
	return nil
}

func (j *judge) hold(name string, args []string) error {
	p := &v1.Pod{Spec: v1.PodSpec{Containers: []v1.Container{{Name: "main"}}}}
	p.Name, p.UID = name, types.UID(name)
	c := &p.Spec.Containers[0]
	for _, a := range args {
		if text, ok := strings.CutPrefix(a, "port="); ok {
			port, err := strconv.Atoi(text)
			if err != nil {
				return err
			}
			c.Ports = append(c.Ports, v1.ContainerPort{HostPort: int32(port)})
		} else if err := setResources(&c.Resources, []string{"request:" + a}); err != nil {
			return err
		}
	}
	j.others = append(j.others, admission.Held{UID: p.UID, Pod: p, Amount: admission.Need(p)})
	return nil
}

// only fails unless that is the one other pod.
func (j *judge) only(name string) error {
	if len(j.others) != 1 || j.others[0].Pod.Name != name {
		return fmt.Errorf("%s isn't the one pod beside this one", name)
	}
	return nil
}

// admit judges the pod; those that it preempts are ending from then on.
func (j *judge) admit(p *v1.Pod) *pod.Failure {
	jury := admission.NewJudge(&j.node, admission.AmountOf(j.capacity.Requests))
	for _, h := range j.others {
		jury.Add(h)
	}
	a := jury.Admit(p, admission.Need(p))
	for range a.Preempt {
		j.others[0].Ending = true
	}
	return a.Failure
}
