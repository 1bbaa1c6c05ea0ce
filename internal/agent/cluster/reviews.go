package cluster

import (
	"context"

	authentication "k8s.io/api/authentication/v1"
	authorization "k8s.io/api/authorization/v1"

	"github.com/deckhand-node/deckhand/internal/cluster/apiclient"
	"github.com/deckhand-node/deckhand/internal/server/secure"
)

// Reviewer returns a reviewer of tokens and access that asks the API server.
func (c *Cluster) Reviewer() secure.Reviewer { return reviewer{c.client} }

type reviewer struct{ client *apiclient.Client }

// ReviewToken implements secure.Reviewer.
func (r reviewer) ReviewToken(ctx context.Context, t *authentication.TokenReview) error {
	return r.client.Create(ctx, apiclient.Reviews, apiclient.TokenReviews, "", t, t)
}

// ReviewAccess implements secure.Reviewer.
func (r reviewer) ReviewAccess(ctx context.Context, s *authorization.SubjectAccessReview) error {
	return r.client.Create(ctx, apiclient.Reviews, apiclient.SubjectAccessReviews, "", s, s)
}
