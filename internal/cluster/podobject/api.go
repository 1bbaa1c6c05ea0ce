package podobject

import (
	"context"
	stderrors "errors"
	"fmt"
	"slices"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"

	"github.com/deckhand-node/deckhand/internal/cluster/apiclient"
)

// PodsOf returns the pods of a node at the client's API server.
func PodsOf(c *apiclient.Client, node string) Pods { return pods{c, node} }

// UIDs returns the UIDs of the pods that the API server has for a node now.
func UIDs(ctx context.Context, c *apiclient.Client, node string) ([]types.UID, error) {
	all, err := c.List(ctx, apiclient.Pods, "", chosen(node))
	if err != nil {
		return nil, fmt.Errorf("list the pods of the node: %w", err)
	}
	var uids []types.UID
	for _, o := range all.Objects {
		if p, ok := o.(*v1.Pod); ok {
			uids = append(uids, p.UID)
		}
	}
	for _, m := range all.Malformed {
		uids = append(uids, m.UID)
	}
	return uids, nil
}

func chosen(node string) apiclient.Selectors {
	return apiclient.Selectors{Fields: "spec.nodeName=" + node}
}

// Replaced reports whether a call failed because the object is gone. Another object may have its name.
func Replaced(err error) bool {
	var status errors.APIStatus
	if errors.IsInvalid(err) && stderrors.As(err, &status) && status.Status().Details != nil { // another UID
		return slices.ContainsFunc(status.Status().Details.Causes, func(c metav1.StatusCause) bool {
			return c.Field == "metadata.uid"
		})
	}
	return errors.IsNotFound(err) || errors.IsConflict(err)
}

type pods struct {
	client *apiclient.Client
	node   string
}

func (p pods) Watch(ctx context.Context, to apiclient.Sight) {
	p.client.Watch(ctx, apiclient.Pods, "", chosen(p.node), to)
}

func (p pods) Create(ctx context.Context, mirror *v1.Pod) (*v1.Pod, error) {
	var o v1.Pod
	if err := p.client.Create(ctx, apiclient.Calls, apiclient.Pods, mirror.Namespace, mirror, &o); err != nil {
		return nil, fmt.Errorf("create mirror pod %s/%s: %w", mirror.Namespace, mirror.Name, err)
	}
	return &o, nil
}

func (p pods) PatchStatus(ctx context.Context, namespace, name string, body []byte) (*v1.Pod, error) {
	var o v1.Pod
	if err := p.client.Patch(ctx, apiclient.Calls, apiclient.Pods, namespace, name, types.StrategicMergePatchType, body,
		&o, "status"); err != nil {
		return nil, fmt.Errorf("patch the status of pod %s/%s: %w", namespace, name, err)
	}
	return &o, nil
}

func (p pods) Delete(ctx context.Context, namespace, name string, uid types.UID) error {
	if err := p.client.Delete(ctx, apiclient.Calls, apiclient.Pods, namespace, name,
		metav1.DeleteOptions{GracePeriodSeconds: ptr.To[int64](0),
			Preconditions: &metav1.Preconditions{UID: &uid}}); err != nil {
		return fmt.Errorf("delete pod %s/%s: %w", namespace, name, err)
	}
	return nil
}
