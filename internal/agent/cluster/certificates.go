package cluster

import (
	"context"
	"crypto/tls"
	"sync"
	"time"

	"github.com/deckhand-node/deckhand/internal/cluster/apiclient"
	"github.com/deckhand-node/deckhand/internal/cluster/certificates"
)

// bootstrapper asks the API server for the node's first certificate, as who another kubeconfig says.
type bootstrapper struct{ conf apiclient.Config }

// bootstrap is a bootstrapper with this kubeconfig; all else is as the node's own client has it.
func bootstrap(own apiclient.Config, kubeconfig string) bootstrapper {
	own.Kubeconfig, own.Rotated, own.Awaited, own.Log = kubeconfig, "", false, own.Log.WithName("bootstrap")
	return bootstrapper{own}
}

// ask calls do with the requests there, again while they can't be made at all, and waits until nothing is left of the
// connection.
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

// again calls do until its error isn't that the API server can't be used, or ctx ends. The client logs that, once.
func again(ctx context.Context, client *apiclient.Client, do func() error) error {
	changed, stop := client.Subscribe()
	defer stop()
	for failures := 0; ; failures++ {
		err := do()
		if !apiclient.Unusable(err) {
			return err
		}
		_, after := apiclient.Retry(err, failures)
		timer := time.NewTimer(after)
		select {
		case <-ctx.Done():
		case <-changed:
		case <-timer.C:
		}
		timer.Stop()
		if ctx.Err() != nil {
			return ctx.Err()
		}
	}
}

// IssuedCertificate is the HTTPS server's certificate, of the cluster; nil if the cluster isn't asked for it.
func (c *Cluster) IssuedCertificate() func() *tls.Certificate {
	if c.serving == nil {
		return nil
	}
	return c.serving.Certificate
}
