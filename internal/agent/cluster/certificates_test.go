package cluster

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"github.com/go-logr/logr/funcr"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/deckhand-node/deckhand/internal/cluster/apiclient"
	"github.com/deckhand-node/deckhand/internal/cluster/certificates"
	"github.com/deckhand-node/deckhand/internal/kit/filewatch"
	"github.com/deckhand-node/deckhand/internal/report/metrics"
)

// A bootstrap kubeconfig that comes late is used as soon as it is there, and that it isn't is said once.
func TestBootstrapKubeconfigComesLate(t *testing.T) {
	path := filepath.Join(t.TempDir(), "bootstrap.conf")
	var missing atomic.Int32
	told := make(chan struct{})
	b := bootstrap(apiclient.Config{Files: filewatch.New(filewatch.Every, logr.Discard()), ContentType: runtime.ContentTypeJSON, Meter: metrics.New(metrics.Info{}).APIClient, Awaited: true, Log: funcr.New(func(_, line string) {
		if strings.Contains(line, "can't be used") {
			if missing.Add(1) == 1 {
				close(told)
			}
		}
	}, funcr.Options{})}, path)
	tries := 0
	err := b.ask(t.Context(), func(ctx context.Context, requests certificates.Requests) error {
		if tries++; tries > 1 {
			return nil
		}
		_, err := requests.Get(ctx, "a")
		if !apiclient.Unusable(err) || !strings.Contains(err.Error(), "no such file") {
			t.Errorf("without a kubeconfig: %v", err)
		}
		select {
		case <-told:
		case <-time.After(time.Minute):
			t.Error("it isn't logged")
		}
		if err := os.WriteFile(path, []byte("apiVersion: v1\nkind: Config\ncurrent-context: c\ncontexts: [{name: c, context: {cluster: k, user: u}}]\nclusters: [{name: k, cluster: {server: 'https://127.0.0.1:1'}}]\nusers: [{name: u, user: {token: t}}]\n"), 0o600); err != nil {
			t.Error(err)
		}
		return err
	})
	if err != nil || tries != 2 || missing.Load() != 1 {
		t.Errorf("%d tries, said %d times, %v", tries, missing.Load(), err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	if err := b.ask(ctx, func(ctx context.Context, requests certificates.Requests) error {
		_, err := requests.Get(ctx, "a") // nothing listens there
		cancel()
		return err
	}); err == nil {
		t.Error("no error when it ended")
	}
}
