package agent

import (
	"context"
	"errors"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"github.com/go-logr/logr"
	v1 "k8s.io/api/core/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
	"k8s.io/utils/ptr"

	"github.com/deckhand-node/deckhand/internal/credentials"
	"github.com/deckhand-node/deckhand/internal/credentials/provider"
	"github.com/deckhand-node/deckhand/internal/credentials/provider/providerconfig"
	"github.com/deckhand-node/deckhand/internal/image"
	"github.com/deckhand-node/deckhand/internal/image/access"
	"github.com/deckhand-node/deckhand/internal/imagegc"
	"github.com/deckhand-node/deckhand/internal/imagegc/choice"
	"github.com/deckhand-node/deckhand/internal/metrics"
	"github.com/deckhand-node/deckhand/internal/objects"
	"github.com/deckhand-node/deckhand/internal/pod"
	"github.com/deckhand-node/deckhand/internal/runtime/cri"
	"github.com/deckhand-node/deckhand/internal/runtime/embedded"
	"github.com/deckhand-node/deckhand/internal/runtime/embedded/progress"
)

// imageSide is everything about the images on the node.
type imageSide struct {
	agent    *Agent
	manager  *image.Manager
	records  *access.Records
	guard    *imagegc.Guard
	gc       *imagegc.Collector
	arrivals *arrivals
	// started is closed when images may be asked for.
	started chan struct{}
	log     logr.Logger
}

// newImageSide makes what pulls, keeps and removes images. live are the objects that
// pods refer to.
func (a *Agent) newImageSide(live *objects.Live) (*imageSide, error) {
	k := &a.cfg.Kubelet
	plugins, err := providerconfig.Load(a.cfg.CredentialProviders.Config, a.cfg.CredentialProviders.BinDir)
	if err != nil {
		return nil, err
	}
	policy, err := access.NewPolicy(k.ImagePullCredentialsVerificationPolicy, k.PreloadedImagesVerificationAllowlist)
	if err != nil {
		return nil, err
	}
	log := a.log.WithName("image")
	s := &imageSide{agent: a, guard: imagegc.NewGuard(), arrivals: newArrivals(), started: make(chan struct{}), log: log}
	s.records = access.New(access.Config{RootDir: a.cfg.RootDir, Policy: policy, Meter: checkMeter{a.metrics.Images}, Log: log})
	a.metrics.CollectPullRecords(s.records.Counts)
	keyring := credentials.NewKeyring(credentials.Options{
		Secrets: live, ServiceAccounts: live, Node: nodeFiles(a.cfg.RootDir, log), Recorder: a.events, Log: log,
		Providers: provider.New(provider.Options{Providers: plugins, ServiceAccounts: live, Tokens: provider.NoTokens{}, Metrics: a.metrics.Credentials, Log: log}),
	})
	c := image.Config{
		Runtime: images{a.conn}, Keyring: keyring, Access: s.records, Meter: a.metrics.Images,
		MaxParallelPulls: parallelPulls(k), PullsPerSecond: int(ptr.Deref(k.RegistryPullQPS, 0)), Burst: int(k.RegistryBurst), Log: log,
	}
	var keep func() map[string]string
	if a.embedded != nil {
		own := EmbeddedConfig(a.cfg)
		c.Transfers = transfers{own}
		keep = func() map[string]string { return s.brought(own.PauseImage) }
	}
	s.manager = image.New(c)
	s.gc = imagegc.New(imagegc.Config{
		Policy: choice.Policy{High: int(ptr.Deref(k.ImageGCHighThresholdPercent, 0)), Low: int(ptr.Deref(k.ImageGCLowThresholdPercent, 0)),
			MinAge: k.ImageMinimumGCAge.Duration, MaxAge: k.ImageMaximumGCAge.Duration},
		Runtime: a.conn, Users: s, Guard: s.guard, Measure: imagegc.Statfs, Records: filepath.Join(a.cfg.RootDir, "checkpoints", "images.json"),
		Keep: keep, Listener: s, Events: nodeEvents{a}, Meter: a.metrics.Garbage, Log: a.log.WithName("imagegc"),
	})
	return s, nil
}

// brought are the images that came with deckhand or that a person has put beside it, and why
// each stays: with no registry to pull them from, they would be gone for good.
func (s *imageSide) brought(pause string) map[string]string {
	keep := map[string]string{}
	for _, name := range s.agent.embedded.Archived() {
		keep[name] = "its archive is in the images folder"
	}
	keep[pause] = "the image of the pods' sandboxes"
	return keep
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

// start reads who may use which image. Until then nobody may ask for one: what is written
// down of a pull would be lost.
func (s *imageSide) start(context.Context) error {
	defer close(s.started)
	if err := s.records.Load(); err != nil {
		s.log.Error(err, "It isn't known who may use the images on this node: pods have to show credentials for each")
	}
	return nil
}

// Ensure makes an image present, and keeps it from being collected meanwhile.
func (s *imageSide) Ensure(ctx context.Context, r image.Request) (image.Image, error) {
	user := choice.User{How: "a pull by hand"}
	if r.Pod != nil {
		user = choice.User{Pod: r.Pod.Namespace + "/" + r.Pod.Name, How: "about to start"}
	}
	hold, err := s.guard.Hold(ctx, r.Image, user)
	if err != nil {
		return image.Image{}, err
	}
	defer hold.Release()
	for {
		img, err := s.manager.Ensure(ctx, r)
		if err != nil {
			return image.Image{}, awaitingLogin(r, err)
		}
		if img.Pulled {
			s.gc.Wake()
		}
		gone, err := hold.Found(ctx, img.Ref)
		if err != nil || !gone {
			return img, err
		}
	}
}

// awaitingLogin has a pod's pull that failed tried again when objects change: a pull
// secret may come, or be mended. Without other credentials that costs no pull.
func awaitingLogin(r image.Request, err error) error {
	var f *pod.Failure
	if r.Pod == nil || !errors.As(err, &f) || f.NotBefore.IsZero() {
		return err
	}
	awaiting := *f
	awaiting.Awaits = "credentials for " + r.Image
	return &awaiting
}

// InUse lists who needs which image: what the runtime has, and what should run.
func (s *imageSide) InUse(context.Context) (uses []imagegc.Use, err error) {
	set := s.agent.merger.Current()
	if !set.Synced {
		err = fmt.Errorf("%w: not all sources of pods have reported", imagegc.ErrUnsettled)
	}
	select {
	case <-s.agent.observed.Synced():
	default:
		err = fmt.Errorf("%w: the runtime's containers aren't known", imagegc.ErrUnsettled)
	}
	for _, o := range s.agent.allObserved() {
		for i := range o.Containers {
			c := &o.Containers[i]
			u := choice.User{Pod: o.Namespace + "/" + o.Name, Container: c.Name}
			if c.Ended() {
				u.How = "ended"
			}
			uses = append(uses, imagegc.Use{Image: c.ImageRef, User: u})
		}
	}
	for _, d := range set.Pods {
		uses = append(uses, wantedImages(d.Pod)...)
	}
	return uses, err
}

// wantedImages lists the images that a pod's spec names.
func wantedImages(p *v1.Pod) []imagegc.Use {
	var uses []imagegc.Use
	name := p.Namespace + "/" + p.Name
	for container := range pod.ContainerNames(p) {
		if c := pod.ContainerNamed(p, container); c != nil {
			uses = append(uses, imagegc.Use{Image: c.Image, User: choice.User{Pod: name, Container: container}})
		}
	}
	for i := range p.Spec.Volumes {
		if source := p.Spec.Volumes[i].Image; source != nil {
			uses = append(uses, imagegc.Use{Image: source.Reference, User: choice.User{Pod: name, How: "image volume"}})
		}
	}
	return uses
}

// Present is told which images there are.
func (s *imageSide) Present(ctx context.Context, ids []string, since time.Time) {
	if err := errors.Join(s.records.Settle(ctx, s.refOf), s.records.Prune(ids, since)); err != nil && ctx.Err() == nil {
		s.log.Error(err, "Can't keep in order who may use which image")
	}
}

// refOf is what the runtime has under a name; empty for nothing.
func (s *imageSide) refOf(ctx context.Context, name string) (string, error) {
	stored, err := images{s.agent.conn}.ImageStatus(ctx, name)
	return stored.Ref, err
}

// run takes in images that came by other means than a pull.
func (s *imageSide) run(ctx context.Context) error {
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-s.arrivals.wake:
		}
		for _, name := range s.arrivals.take() {
			ref, err := s.refOf(ctx, name)
			if err == nil && ref != "" {
				err = s.records.Imported(name, ref)
			}
			if err != nil && ctx.Err() == nil {
				s.log.Error(err, "Can't write down that an image was imported", "image", name)
			}
		}
		s.arrived()
	}
}

// arrived has the pods that wait for an image look again.
func (s *imageSide) arrived() {
	s.manager.RetryAll()
	s.agent.imagesAt.now()
	s.agent.pool.WakeAll()
	s.gc.Wake()
}

// arrivals are names of images that came, until they are taken in.
type arrivals struct {
	wake chan struct{}

	mu    sync.Mutex
	names []string
}

func newArrivals() *arrivals { return &arrivals{wake: make(chan struct{}, 1)} }

// add doesn't block.
func (a *arrivals) add(names []string) {
	a.mu.Lock()
	a.names = append(a.names, names...)
	a.mu.Unlock()
	select {
	case a.wake <- struct{}{}:
	default:
	}
}

func (a *arrivals) take() []string {
	a.mu.Lock()
	defer a.mu.Unlock()
	names := a.names
	a.names = nil
	return slices.Compact(names)
}

// images offers the runtime's images to the image manager.
type images struct{ conn *cri.Conn }

func (i images) ImageStatus(ctx context.Context, name string) (image.Stored, error) {
	img, err := i.conn.ImageStatus(ctx, &runtimeapi.ImageSpec{Image: name})
	if err != nil || img == nil {
		return image.Stored{}, inOwnWords(err)
	}
	return image.Stored{Ref: img.Id, Size: int64(min(img.Size, math.MaxInt64))}, nil
}

func (i images) PullImage(ctx context.Context, name string, login *credentials.Credential) (string, error) {
	var auth *runtimeapi.AuthConfig
	if login != nil {
		// Not its ServerAddress: containerd drops the rest where that isn't the URL of the host it asks.
		auth = &runtimeapi.AuthConfig{Username: login.Username, Password: login.Password, IdentityToken: login.IdentityToken, RegistryToken: login.RegistryToken}
	}
	ref, err := i.conn.PullImage(ctx, &runtimeapi.ImageSpec{Image: name}, auth, nil)
	return ref, inOwnWords(err)
}

// inOwnWords is what the runtime said, without the connection's words in front: runtimes begin
// with the reason (k8s.io/cri-api/pkg/errors), and which image it is about the manager says.
func inOwnWords(err error) error {
	if told := (*cri.Error)(nil); errors.As(err, &told) {
		return told.Unwrap()
	}
	return err
}

// transfers tells how far the embedded containerd's pulls are.
type transfers struct{ config embedded.Config }

func (t transfers) Transfer(ctx context.Context, name string) (image.Transfer, bool) {
	conn, err := embedded.Dial(t.config)
	if err != nil {
		return image.Transfer{}, false
	}
	defer conn.Close()
	p, known, err := progress.Of(ctx, conn, name)
	return image.Transfer(p), known && err == nil
}

// checkMeter offers the metrics to the records of who may use which image.
type checkMeter struct{ *metrics.Images }

func (c checkMeter) Checked(r access.Result) { c.Images.Checked(string(r)) }

// nodeEvents offers the recorder to who tells of the node.
type nodeEvents struct{ *Agent }

func (n nodeEvents) NodeEvent(eventType, reason, message string) {
	n.tellNode(pod.Event{Type: pod.EventType(eventType), Reason: reason, Message: message})
}
