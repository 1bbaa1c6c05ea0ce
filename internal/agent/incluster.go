package agent

import (
	"crypto/tls"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/kubelet/config/v1beta1"

	"github.com/deckhand-node/deckhand/internal/agent/cluster"
	"github.com/deckhand-node/deckhand/internal/cluster/nodefacts"
	"github.com/deckhand-node/deckhand/internal/cluster/nodeobject"
	"github.com/deckhand-node/deckhand/internal/kit/modules"
	"github.com/deckhand-node/deckhand/internal/pod"
	"github.com/deckhand-node/deckhand/internal/pod/object"
	"github.com/deckhand-node/deckhand/internal/runtime/health"
	"github.com/deckhand-node/deckhand/internal/server/local/view"
	"github.com/deckhand-node/deckhand/internal/server/secure"
)

// apiServer is the agent's connection to a cluster. The type alone implements it for an agent without a cluster.
type apiServer interface {
	// Modules returns the modules of the connection.
	Modules() []modules.Module
	SetLimits(*v1beta1.KubeletConfiguration)
	PodsChanged()
	// ClockChanged has to be called after the clock was set, or the machine suspended.
	ClockChanged()

	// Reviewer reviews tokens and access of clients; nil without a cluster.
	Reviewer() secure.Reviewer
	// IssuedCertificate returns the source of the HTTPS server's certificate; nil unless the cluster issues that
	// certificate.
	IssuedCertificate() func() *tls.Certificate
	// Finder finds the objects that pods refer to.
	Finder() object.Finder
	view.Cluster
}

// alone implements apiServer for an agent without a cluster.
type alone struct {
	objects object.Finder
	facts   func() *nodefacts.Facts
	runtime *health.State
	healthy func(time.Time) error
}

// Conditions returns the conditions that the Node object would have in a cluster.
func (a alone) Conditions() []v1.NodeCondition {
	facts := a.facts()
	r := nodeobject.Report{Pressure: facts.Pressure, StorageFailed: facts.StorageFailed}
	if r.NotReady = a.runtime.NotReady(); len(r.NotReady) > 0 {
		return r.Status().Conditions
	}
	if err := a.healthy(time.Now()); err != nil {
		r.NotReady = []string{err.Error()}
	}
	return r.Status().Conditions
}

func (a alone) Finder() object.Finder { return a.objects }

func (alone) Modules() []modules.Module { return nil }

func (alone) SetLimits(*v1beta1.KubeletConfiguration) {}

func (alone) PodsChanged() {}

func (alone) ClockChanged() {}

func (alone) Reviewer() secure.Reviewer { return nil }

func (alone) Problems() []pod.Problem { return nil }

func (alone) ProblemsChanged() (<-chan struct{}, func()) { return nil, func() {} }

func (alone) IssuedCertificate() func() *tls.Certificate { return nil }

func newCluster(b *foundation, r *runtimeParts, d *desiredParts) (apiServer, error) {
	if !b.joins() {
		return alone{d.objects, r.host.facts.Now, r.state, r.seen.Healthy}, nil
	}
	info, err := cluster.Machine("/", r.host.forAdmission.Kernel, b.cfg.KubeletVersion)
	if err != nil {
		return nil, err
	}
	return cluster.New(cluster.Config{Node: b.cfg, Facts: r.host.facts, Runtime: r.state, Info: info,
		Healthy: r.seen.Healthy, Desired: d.Merger, Statuses: b.statuses, Observed: r.seen, Events: b.node,
		Objects: d.objects, ObjectsChanged: b.wakes.objectsChanged, Files: b.files,
		PodsDir: b.dirs.Pods(), Known: b.checkpoint("apiserver.jsonl"), DiskFreed: &b.wakes.writers,
		Meter:             b.meter.APIClient,
		ClientCertificate: b.meter.Certificates.Client, ServingCertificate: b.meter.Certificates.Serving, Log: b.log})
}
