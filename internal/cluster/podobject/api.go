package podobject

import (
	"context"
	"fmt"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"

	"github.com/deckhand-node/deckhand/internal/cluster/apiclient"
)

// PodsOf are the pods of a node at the API server that a client talks to.
func PodsOf(c *apiclient.Client, node string) Pods { return pods{c, node} }

type pods struct {
	client *apiclient.Client
	node   string
}

func (p pods) Watch(ctx context.Context, to apiclient.Sight) {
	p.client.Watch(ctx, apiclient.Pods, "", apiclient.Selectors{Fields: "spec.nodeName=" + p.node}, to)
}

func (p pods) PatchStatus(ctx context.Context, namespace, name string, body []byte) (*v1.Pod, error) {
	var o v1.Pod
	if err := p.client.Patch(ctx, apiclient.Calls, apiclient.Pods, namespace, name, types.StrategicMergePatchType, body, &o, "status"); err != nil {
		return nil, fmt.Errorf("patch the status of pod %s/%s: %w", namespace, name, err)
	}
	return &o, nil
}

func (p pods) Delete(ctx context.Context, namespace, name string, uid types.UID) error {
	if err := p.client.Delete(ctx, apiclient.Calls, apiclient.Pods, namespace, name,
		metav1.DeleteOptions{GracePeriodSeconds: ptr.To[int64](0), Preconditions: &metav1.Preconditions{UID: &uid}}); err != nil {
		return fmt.Errorf("delete pod %s/%s: %w", namespace, name, err)
	}
	return nil
}
