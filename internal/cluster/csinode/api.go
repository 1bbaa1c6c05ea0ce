package csinode

import (
	"context"

	storage "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"

	"github.com/deckhand-node/deckhand/internal/cluster/apiclient"
)

// CSINodesOf returns the CSINode objects at the client's API server.
func CSINodesOf(c *apiclient.Client) CSINodes { return csiNodes{c} }

type csiNodes struct{ client *apiclient.Client }

func (c csiNodes) Get(ctx context.Context, name string) (*storage.CSINode, error) {
	var o storage.CSINode
	return result(&o, c.client.Get(ctx, apiclient.Calls, apiclient.CSINodes, "", name, &o))
}

func (c csiNodes) Create(ctx context.Context, n *storage.CSINode) (*storage.CSINode, error) {
	var o storage.CSINode
	return result(&o, c.client.Create(ctx, apiclient.Calls, apiclient.CSINodes, "", n, &o))
}

func (c csiNodes) Update(ctx context.Context, n *storage.CSINode) (*storage.CSINode, error) {
	var o storage.CSINode
	return result(&o, c.client.Update(ctx, apiclient.Calls, apiclient.CSINodes, "", n, &o))
}

func (c csiNodes) Delete(ctx context.Context, name string, uid types.UID) error {
	return c.client.Delete(ctx, apiclient.Calls, apiclient.CSINodes, "", name,
		metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: ptr.To(uid)}})
}

// result returns the object, or nil and the error.
func result(o *storage.CSINode, err error) (*storage.CSINode, error) {
	if err != nil {
		return nil, err
	}
	return o, nil
}
