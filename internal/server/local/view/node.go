package view

import (
	"cmp"
	"context"
	"slices"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	helpers "k8s.io/component-helpers/resource"

	"github.com/deckhand-node/deckhand/internal/pod/allocated"
	"github.com/deckhand-node/deckhand/internal/resources/assign"
	"github.com/deckhand-node/deckhand/internal/resources/pressure"
	"github.com/deckhand-node/deckhand/internal/server/local"
)

// Node returns the state of the node and the resources of its pods.
func (v View) Node(ctx context.Context) (local.Node, error) {
	reserved, err := v.conf.Capacity.Reserved(&v.conf.Current().Kubelet)
	if err != nil {
		return local.Node{}, err
	}
	facts := v.conf.Facts()
	n := local.Node{Name: v.conf.Node, HostIPs: facts.HostIPs, Labels: facts.Labels, Taints: facts.Taints,
		Conditions: v.conf.Cluster.Conditions(),
		Capacity:   facts.Capacity, Reserved: reserved, Allocatable: facts.Allocatable,
		Problems: slices.Concat(v.conf.Desired.Current().Problems, v.shortages(ctx), v.conf.NodeProblems()),
		Modules:  v.conf.Modules()}
	n.Evictions = evictionsOf(v.conf.Pressure(), time.Now())
	holdings := v.conf.Holdings()
	for _, e := range v.conf.Statuses.List() {
		h, ok := holdings[e.Pod.UID]
		if !ok {
			continue
		}
		delete(holdings, e.Pod.UID)
		p := allocated.Apply(e.Pod, h.Allocation)
		n.Pods = append(n.Pods, local.NodePod{Namespace: p.Namespace, Name: p.Name, UID: p.UID,
			QOSClass: p.Status.QOSClass,
			Requests: h.Requests.List(), Limits: helpers.PodLimits(p, helpers.PodResourcesOptions{}),
			Devices: v.conf.Devices(p.UID)})
	}
	// The pods that remain in holdings have no worker yet. Pods that no source has any more have no spec, either.
	for uid, h := range holdings {
		p := local.NodePod{UID: uid, Requests: h.Requests.List(), Devices: v.conf.Devices(uid)}
		if d := v.conf.Desired.Current().Get(uid); d != nil {
			spec := allocated.Apply(d.Pod, h.Allocation)
			p.Namespace, p.Name, p.QOSClass, p.Limits = spec.Namespace, spec.Name, spec.Status.QOSClass,
				helpers.PodLimits(spec, helpers.PodResourcesOptions{})
		}
		n.Pods = append(n.Pods, p)
	}
	slices.SortFunc(n.Pods, func(a, b local.NodePod) int {
		return cmp.Or(cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Name, b.Name), cmp.Compare(a.UID, b.UID))
	})
	n.CPUs, n.CPUDifferences = cpusOf(v.conf.CPUs(), n.Pods)
	return n, nil
}

func cpusOf(s *assign.Status, pods []local.NodePod) (list []local.NodeCPUs, differences []string) {
	if s == nil {
		return nil, nil
	}
	for _, u := range s.Uses {
		c := local.NodeCPUs{Node: u.Node, CPUs: u.CPUs.String(), Use: string(u.Kind), UID: u.UID,
			Container: u.Container}
		if i := slices.IndexFunc(pods, func(p local.NodePod) bool { return p.UID == u.UID }); i >= 0 {
			c.Namespace, c.Name = pods[i].Namespace, pods[i].Name
		}
		list = append(list, c)
	}
	for _, d := range s.Differences {
		differences = append(differences, d.Message)
	}
	return list, differences
}

func evictionsOf(s pressure.Status, now time.Time) *local.Evictions {
	e := &local.Evictions{}
	if s.Observed {
		e.Observed = now.Add(-s.Age)
	}
	if s.Unread != nil {
		e.Unread = s.Unread.Error()
	}
	if s.Woken != "" {
		e.Alarm, e.AlarmAt = s.Woken, now.Add(-s.Quiet)
	}
	for _, of := range s.Signals {
		t := local.EvictionThreshold{Signal: string(of.Threshold.Signal), Resource: of.Threshold.Signal.Resource(),
			Threshold: of.Threshold.Least.String(), Least: of.Least,
			Grace: metav1.Duration{Duration: of.Threshold.Grace}}
		if of.Readable {
			t.Available, t.Capacity = &of.Reading.Available, of.Reading.Capacity
		}
		if of.Met {
			t.MetSince, t.EvictsFrom = now.Add(-of.For), now.Add(of.Left)
		}
		e.Thresholds = append(e.Thresholds, t)
	}
	return e
}
