package agent

import (
	"errors"
	"os"
	"path/filepath"

	"github.com/go-logr/logr"
	"k8s.io/kubelet/config/v1beta1"
	"k8s.io/utils/ptr"

	"github.com/deckhand-node/deckhand/internal/credentials"
	"github.com/deckhand-node/deckhand/internal/credentials/provider"
	"github.com/deckhand-node/deckhand/internal/credentials/provider/providerconfig"
	"github.com/deckhand-node/deckhand/internal/image"
	"github.com/deckhand-node/deckhand/internal/image/access"
	"github.com/deckhand-node/deckhand/internal/imagegc"
	"github.com/deckhand-node/deckhand/internal/imagegc/choice"
	"github.com/deckhand-node/deckhand/internal/metrics"
	"github.com/deckhand-node/deckhand/internal/nodeimages"
)

// buildImages makes what pulls, keeps and removes images.
func (a *Agent) buildImages() error {
	k, log := &a.cfg.Kubelet, a.log.WithName("image")
	plugins, err := providerconfig.Load(a.cfg.CredentialProviders.Config, a.cfg.CredentialProviders.BinDir)
	if err != nil {
		return err
	}
	policy, err := access.NewPolicy(k.ImagePullCredentialsVerificationPolicy, k.PreloadedImagesVerificationAllowlist)
	if err != nil {
		return err
	}
	allowed := access.New(access.Config{RootDir: a.cfg.RootDir, Policy: policy, Meter: checkMeter{a.metrics.Images}, Log: log})
	a.metrics.CollectPullRecords(allowed.Counts)
	keyring := credentials.NewKeyring(credentials.Options{
		Secrets: a.objects, ServiceAccounts: a.objects, Node: nodeFiles(a.cfg.RootDir, log), Recorder: a.events, Log: log,
		Providers: provider.New(provider.Options{Providers: plugins, ServiceAccounts: a.objects, Tokens: provider.NoTokens{}, Metrics: a.metrics.Credentials, Log: log}),
	})
	var own nodeimages.Own = nodeimages.Other{}
	if a.embedded != nil {
		own = nodeimages.Embedded{Runtime: a.embedded, Config: EmbeddedConfig(a.cfg)}
	}
	runtime := nodeimages.Runtime{Conn: a.conn}
	parallel, perSecond, burst := pullLimits(k)
	a.pulls = image.New(image.Config{
		Runtime: runtime, Keyring: keyring, Access: allowed, Meter: a.metrics.Images, Transfers: own,
		MaxParallelPulls: parallel, PullsPerSecond: perSecond, Burst: burst, Log: log,
	})
	records, guard := &nodeimages.Records{Access: allowed, Runtime: runtime, Log: log}, imagegc.NewGuard()
	a.collector = imagegc.New(imagegc.Config{
		Policy:  collectionPolicy(k),
		Runtime: a.conn, Users: nodeimages.Users{Pods: everyPod{a}}, Guard: guard, Measure: imagegc.Statfs, Records: filepath.Join(a.dirs.Checkpoints(), "images.json"),
		Keep: own.Keep, Listener: records, Events: nodeEvents{a}, Meter: a.metrics.Garbage, Log: a.log.WithName("imagegc"),
	})
	arrived := func() {
		a.imagesAt.now()
		a.pool.WakeAll()
	}
	a.images = nodeimages.New(nodeimages.Config{Manager: a.pulls, Collector: a.collector, Guard: guard, Records: records, Own: own, Arrived: arrived, Log: log})
	return nil
}

// nodeFiles are the docker configurations of the node itself.
func nodeFiles(root string, log logr.Logger) *credentials.NodeFiles {
	dir, errDir := os.Getwd()
	home, errHome := os.UserHomeDir()
	if err := errors.Join(errDir, errHome); err != nil {
		log.V(2).Info("Some folders of docker configurations can't be told", "err", err)
	}
	return credentials.NewNodeFiles(root, dir, home, log)
}

func collectionPolicy(k *v1beta1.KubeletConfiguration) choice.Policy {
	return choice.Policy{High: int(ptr.Deref(k.ImageGCHighThresholdPercent, 0)), Low: int(ptr.Deref(k.ImageGCLowThresholdPercent, 0)),
		MinAge: k.ImageMinimumGCAge.Duration, MaxAge: k.ImageMaximumGCAge.Duration}
}

func pullLimits(k *v1beta1.KubeletConfiguration) (parallel, perSecond, burst int) {
	return parallelPulls(k), int(ptr.Deref(k.RegistryPullQPS, 0)), int(k.RegistryBurst)
}

// parallelPulls is how many images are pulled at once; 0 for any number
// (KubeletConfiguration serializeImagePulls, maxParallelImagePulls).
func parallelPulls(k *v1beta1.KubeletConfiguration) int {
	if k.MaxParallelImagePulls != nil {
		return int(*k.MaxParallelImagePulls)
	}
	if k.SerializeImagePulls == nil || *k.SerializeImagePulls {
		return 1
	}
	return 0
}

// checkMeter offers the metrics to the records of who may use which image.
type checkMeter struct{ *metrics.Images }

func (c checkMeter) Checked(r access.Result) { c.Images.Checked(string(r)) }
