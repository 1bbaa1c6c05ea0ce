package cluster

import (
	"context"
	"crypto/tls"
	"sync"
	"time"

	"github.com/deckhand-node/deckhand/internal/cluster/apiclient"
	"github.com/deckhand-node/deckhand/internal/cluster/certificates"
)

// bootstrapper requests the node's first certificate with the credentials of the bootstrap kubeconfig.
type bootstrapper struct{ conf apiclient.Config }

// bootstrap returns a bootstrapper with the credentials of this kubeconfig. All other settings are those of own, the
// node's own client.
func bootstrap(own apiclient.Config, kubeconfig string) bootstrapper {
	own.Kubeconfig, own.Rotated, own.Awaited, own.Log = kubeconfig, "", false, own.Log.WithName("bootstrap")
	return bootstrapper{own}
}

// ask calls the function do with a client that has the bootstrap credentials. It repeats the call while the API server
// can't be used, and returns after the client has stopped.
func (b bootstrapper) ask(ctx context.Context, do func(context.Context, certificates.Requests) error) error {
	client, err := apiclient.New(b.conf)
	if err != nil {
		return err
	}
	running, stop := context.WithCancel(ctx)
	var connected sync.WaitGroup
	var ended error
	connected.Go(func() { ended = client.Run(running) })
	err = again(ctx, client, func() error { return do(ctx, certificates.RequestsOf(client)) })
	stop()
	connected.Wait()
	if err == nil {
		err = ended
	}
	return err
}

// again calls the function do until do succeeds or ctx ends. It also ends if do fails for another reason than an API
// server that can't be used. The client logs once that the API server can't be used.
func again(ctx context.Context, client *apiclient.Client, do func() error) error {
	changed, stop := client.Subscribe()
	defer stop()
	for failures := 0; ; failures++ {
		err := do()
		if !apiclient.Unusable(err) {
			return err
		}
		_, after := apiclient.Retry(err, failures)
		select {
		case <-ctx.Done():
		case <-changed:
		case <-time.After(after):
		}
		if ctx.Err() != nil {
			return ctx.Err()
		}
	}
}

// IssuedCertificate implements agent.apiServer: it returns the source of the HTTPS server's certificate, or nil unless
// the cluster issues that certificate (serverTLSBootstrap).
func (c *Cluster) IssuedCertificate() func() *tls.Certificate {
	if c.serving == nil {
		return nil
	}
	return c.serving.Certificate
}
