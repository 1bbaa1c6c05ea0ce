package cluster

import (
	"context"
	"crypto/tls"
	"sync"

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

// ask calls do with the requests there, and waits until nothing is left of the connection.
func (b bootstrapper) ask(ctx context.Context, do func(context.Context, certificates.Requests) error) error {
	client, err := apiclient.New(b.conf)
	if err != nil {
		return err
	}
	running, stop := context.WithCancel(ctx)
	var connected sync.WaitGroup
	var ended error
	connected.Go(func() { ended = client.Run(running) })
	err = do(ctx, certificates.RequestsOf(client))
	stop()
	connected.Wait()
	if err == nil {
		err = ended
	}
	return err
}

// IssuedCertificate is the HTTPS server's certificate, of the cluster; nil if the cluster isn't asked for it.
func (c *Cluster) IssuedCertificate() func() *tls.Certificate {
	if c.serving == nil {
		return nil
	}
	return c.serving.Certificate
}
