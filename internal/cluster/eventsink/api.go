package eventsink

import (
	"context"
	"fmt"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/deckhand-node/deckhand/internal/cluster/apiclient"
)

// EventsOf returns the events at the client's API server. Their calls have their own rate limit and connections.
func EventsOf(c *apiclient.Client) API { return api{c} }

type api struct{ client *apiclient.Client }

func (a api) Create(ctx context.Context, e *v1.Event) error {
	if err := a.client.Create(ctx, apiclient.Events, apiclient.EventRecords, e.Namespace, e, nil); err != nil {
		return fmt.Errorf("create event %s/%s: %w", e.Namespace, e.Name, err)
	}
	return nil
}

func (a api) Patch(ctx context.Context, namespace, name string, body []byte) error {
	if err := a.client.Patch(ctx, apiclient.Events, apiclient.EventRecords, namespace, name,
		types.StrategicMergePatchType, body, nil); err != nil {
		return fmt.Errorf("patch event %s/%s: %w", namespace, name, err)
	}
	return nil
}
