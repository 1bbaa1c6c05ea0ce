package agent

import (
	"errors"
	"os"

	"github.com/go-logr/logr"

	"github.com/deckhand-node/deckhand/internal/config"
	"github.com/deckhand-node/deckhand/internal/image"
	"github.com/deckhand-node/deckhand/internal/image/access"
	"github.com/deckhand-node/deckhand/internal/image/credentials"
	"github.com/deckhand-node/deckhand/internal/image/credentials/provider"
	"github.com/deckhand-node/deckhand/internal/image/gc"
	"github.com/deckhand-node/deckhand/internal/image/pull"
	"github.com/deckhand-node/deckhand/internal/report/events"
	"github.com/deckhand-node/deckhand/internal/report/metrics"
)

// imageParts pull the node's images, record their use and remove unused ones.
type imageParts struct {
	allowed   *access.Records
	keyring   *credentials.Keyring
	puller    *pull.Manager
	collector *gc.Collector
	images    *image.Images
}

func newImages(b *foundation, r *runtimeParts, d *desiredParts) (*imageParts, error) {
	k, log := b.kubelet(), b.log.WithName("image")
	i := &imageParts{}
	var err error
	if i.allowed, i.keyring, err = imageAccess(b.cfg, b.recorder, b.meter, log); err != nil {
		return nil, err
	}
	runtime, guard := image.Runtime{Conn: r.conn, Extras: r.engine}, gc.NewGuard()
	parallel, perSecond, burst := pull.LimitsOf(k)
	i.puller = pull.New(pull.Config{Runtime: runtime, Keyring: i.keyring, Access: i.allowed, Meter: b.meter.Images,
		Transfers: r.engine, MaxParallelPulls: parallel, PullsPerSecond: perSecond, Burst: burst, Log: log})
	records := &image.Records{Access: i.allowed, Runtime: runtime, Log: log}
	i.collector = gc.New(gc.Config{Policy: gc.PolicyOf(k), Runtime: r.conn, Users: image.Users{Pods: d.pods},
		Guard: guard, Measure: gc.Statfs, Records: b.checkpoint("images.json"), Listed: r.host.setImages,
		Keep: r.engine.Keep, Untag: r.engine.Untag, Listener: records, Events: b.node, Meter: b.meter.Garbage,
		Log: b.log.WithName("imagegc")})
	i.images = image.New(image.Config{Manager: i.puller, Collector: i.collector, Guard: guard, Records: records,
		Extras: r.engine, Imports: r.imports, Arrived: b.wakes.imagesArrived, Log: log})
	return i, nil
}

// imageAccess returns the records of the pods that may use each image, and the credentials for pulls.
func imageAccess(cfg *config.Config, recorder *events.Recorder, meter *metrics.Metrics,
	log logr.Logger) (*access.Records, *credentials.Keyring, error) {
	k := &cfg.Kubelet
	plugins, err := provider.Load(cfg.CredentialProviders.Config, cfg.CredentialProviders.BinDir)
	if err != nil {
		return nil, nil, err
	}
	policy, err := access.NewPolicy(k.ImagePullCredentialsVerificationPolicy, k.PreloadedImagesVerificationAllowlist)
	if err != nil {
		return nil, nil, err
	}
	allowed := access.New(access.Config{RootDir: cfg.RootDir, Policy: policy, Meter: checkMeter{meter.Images},
		Log: log})
	return allowed, credentials.NewKeyring(credentials.Options{
		Node: nodeFiles(cfg.RootDir, log), Recorder: recorder, Log: log,
		Providers: provider.New(provider.Options{Providers: plugins, Metrics: meter.Credentials, Log: log}),
	}), nil
}

// nodeFiles returns the docker configuration files of the node itself.
func nodeFiles(root string, log logr.Logger) *credentials.NodeFiles {
	dir, errDir := os.Getwd()
	home, errHome := os.UserHomeDir()
	if err := errors.Join(errDir, errHome); err != nil {
		log.V(2).Info("Some directories of docker configurations can't be determined", "err", err)
	}
	return credentials.NewNodeFiles(root, dir, home, log)
}

// checkMeter adapts the metrics to the interface of the records of image access.
type checkMeter struct{ *metrics.Images }

func (c checkMeter) Checked(r access.Result) { c.Images.Checked(string(r)) }
