package nodeobject

import (
	"context"

	coordination "k8s.io/api/coordination/v1"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/deckhand-node/deckhand/internal/cluster/apiclient"
)

// NodesOf returns the node objects at the client's API server.
func NodesOf(c *apiclient.Client) Nodes { return nodes{c} }

// LeasesOf returns the node leases at the client's API server. Their calls don't wait for other calls.
func LeasesOf(c *apiclient.Client) Leases { return leases{c} }

type nodes struct{ client *apiclient.Client }

func (n nodes) Get(ctx context.Context, name string) (*v1.Node, error) {
	var o v1.Node
	return result(&o, n.client.Get(ctx, apiclient.Calls, apiclient.Nodes, "", name, &o))
}

func (n nodes) Create(ctx context.Context, node *v1.Node) (*v1.Node, error) {
	var o v1.Node
	return result(&o, n.client.Create(ctx, apiclient.Calls, apiclient.Nodes, "", node, &o))
}

func (n nodes) Patch(ctx context.Context, name string, body []byte) (*v1.Node, error) {
	return n.patch(ctx, name, body)
}

func (n nodes) PatchStatus(ctx context.Context, name string, body []byte) (*v1.Node, error) {
	return n.patch(ctx, name, body, "status")
}

func (n nodes) patch(ctx context.Context, name string, body []byte, sub ...string) (*v1.Node, error) {
	var o v1.Node
	return result(&o, n.client.Patch(ctx, apiclient.Calls, apiclient.Nodes, "", name, types.StrategicMergePatchType,
		body, &o, sub...))
}

func (n nodes) Watch(ctx context.Context, name string, onChange func(*v1.Node)) {
	n.client.Watch(ctx, apiclient.Nodes, "", apiclient.Selectors{Fields: "metadata.name=" + name},
		apiclient.Single[*v1.Node](onChange))
}

type leases struct{ client *apiclient.Client }

func (l leases) Get(ctx context.Context, name string) (*coordination.Lease, error) {
	var o coordination.Lease
	return result(&o, l.client.Get(ctx, apiclient.Heartbeat, apiclient.Leases, v1.NamespaceNodeLease, name, &o))
}

func (l leases) Create(ctx context.Context, lease *coordination.Lease) (*coordination.Lease, error) {
	var o coordination.Lease
	return result(&o, l.client.Create(ctx, apiclient.Heartbeat, apiclient.Leases, v1.NamespaceNodeLease, lease, &o))
}

func (l leases) Update(ctx context.Context, lease *coordination.Lease) (*coordination.Lease, error) {
	var o coordination.Lease
	return result(&o, l.client.Update(ctx, apiclient.Heartbeat, apiclient.Leases, v1.NamespaceNodeLease, lease, &o))
}

// result returns the object, or nil and the error.
func result[T any](o *T, err error) (*T, error) {
	if err != nil {
		return nil, err
	}
	return o, nil
}
