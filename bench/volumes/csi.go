package volumes

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"time"

	spec "github.com/container-storage-interface/spec/lib/go/csi"
	"github.com/go-logr/logr"
	"google.golang.org/grpc"
	v1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/deckhand-node/deckhand/bench/report"
	"github.com/deckhand-node/deckhand/internal/cluster/nodefacts"
	"github.com/deckhand-node/deckhand/internal/host/pluginwatch"
	"github.com/deckhand-node/deckhand/internal/kit/atomicfile"
	"github.com/deckhand-node/deckhand/internal/kit/socket"
	"github.com/deckhand-node/deckhand/internal/pod"
	"github.com/deckhand-node/deckhand/internal/pod/object"
	"github.com/deckhand-node/deckhand/internal/volume"
	"github.com/deckhand-node/deckhand/internal/volume/csi"
)

// goalPublish is the time that deckhand may add to a call that publishes a volume.
const goalPublish = 3 * time.Millisecond

// csiDriver is the name of a driver whose volumes are empty directories: it answers at once.
const csiDriver = "csi.deckhand.bench"

// csiTimes has the time of each call, of the same call by deckhand, and of a durable write of a file as large as the
// record that deckhand writes before the first call.
type csiTimes struct {
	write                []time.Duration
	published, publish   []time.Duration
	unpublished, release []time.Duration
}

// csi publishes and unpublishes volumes one by one, by bare calls and by the plugin, in turns.
func (o Options) csi(ctx context.Context, into *csiTimes) (err error) {
	dir, err := os.MkdirTemp("", "deckhand-volumes-")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, sweep(dir)) }()
	path := filepath.Join(dir, "csi.sock")
	stop, err := serveCSI(path)
	if err != nil {
		return err
	}
	defer stop()
	conn, err := pluginwatch.Connect(path)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, conn.Close()) }()
	plugin, stopPlugin, err := csiPlugin(ctx, dir, path)
	if err != nil {
		return err
	}
	defer stopPlugin()
	bare := spec.NewNodeClient(conn)
	record := make([]byte, 512)
	for i := range o.Single + 1 {
		r := csiRequest(dir, fmt.Sprint("volume-", i))
		beside := filepath.Join(dir, "bare", string(r.UID))
		target := filepath.Join(beside, "mount")
		if err := os.MkdirAll(beside, 0o750); err != nil {
			return err
		}
		var took [5]time.Duration
		for n, do := range []func() error{
			func() error { return atomicfile.Write(filepath.Join(beside, "vol_data.json"), record, 0o600) },
			func() error {
				_, err := bare.NodePublishVolume(ctx, &spec.NodePublishVolumeRequest{VolumeId: "bare", TargetPath: target})
				return err
			},
			func() error { _, err := plugin.Mount(ctx, r); return err },
			func() error {
				_, err := bare.NodeUnpublishVolume(ctx, &spec.NodeUnpublishVolumeRequest{VolumeId: "bare",
					TargetPath: target})
				return err
			},
			func() error { return plugin.Unmount(ctx, r.Place, nil) },
		} {
			began := time.Now()
			if err := do(); err != nil {
				return err
			}
			took[n] = time.Since(began)
		}
		if i == 0 {
			continue // it connects
		}
		into.write = append(into.write, took[0])
		into.published, into.publish = append(into.published, took[1]), append(into.publish, took[2])
		into.unpublished, into.release = append(into.unpublished, took[3]), append(into.release, took[4])
	}
	return nil
}

// serveCSI serves the driver until stop is called.
func serveCSI(path string) (stop func(), err error) {
	l, err := socket.Listen(path)
	if err != nil {
		return nil, err
	}
	s := grpc.NewServer()
	spec.RegisterIdentityServer(s, emptyDriver{})
	spec.RegisterNodeServer(s, emptyDriver{})
	var serving sync.WaitGroup
	serving.Go(func() { _ = s.Serve(l) }) // the calls fail then
	return func() { s.Stop(); serving.Wait() }, nil
}

// csiPlugin returns a plugin with the driver at this socket.
func csiPlugin(ctx context.Context, dir, path string) (p csi.Plugin, stop func(), err error) {
	facts, err := nodefacts.NewBoard(nodefacts.Facts{}).Writer("bench", nodefacts.CSIDrivers)
	if err != nil {
		return p, nil, err
	}
	d := csi.NewDrivers(csi.Config{Facts: facts, Changed: func(...pod.Object) {}, Meter: unmetered{}, Log: logr.Discard(),
		BootID: "this"})
	if err := d.Register(ctx, pluginwatch.Registration{Type: "CSIPlugin", Name: csiDriver, Endpoint: path,
		Versions: []string{"1.0.0"}}); err != nil {
		return p, nil, err
	}
	ctx, cancel := context.WithCancel(ctx)
	var running sync.WaitGroup
	running.Go(func() { _ = d.Run(ctx) }) // nil, always
	return csi.NewPlugin(d, dir), func() { cancel(); running.Wait() }, nil
}

func csiRequest(dir, uid string) volume.Request {
	v := v1.Volume{Name: "data", VolumeSource: v1.VolumeSource{CSI: &v1.CSIVolumeSource{Driver: csiDriver}}}
	return volume.Request{
		Objects: csiObject{},
		Pod:     &v1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "a", UID: types.UID(uid)}},
		Spec:    volume.Spec{Volume: &v},
		Place: volume.Place{UID: types.UID(uid),
			Dir: filepath.Join(dir, "pods", uid, "volumes/kubernetes.io~csi/data")},
	}
}

// csiObject has the driver's CSIDriver object.
type csiObject struct{ object.View }

// CSIDriver returns it.
func (csiObject) CSIDriver(context.Context, string) (*storagev1.CSIDriver, error) {
	return &storagev1.CSIDriver{ObjectMeta: metav1.ObjectMeta{Name: csiDriver}, Spec: storagev1.CSIDriverSpec{
		VolumeLifecycleModes: []storagev1.VolumeLifecycleMode{storagev1.VolumeLifecycleEphemeral}}}, nil
}

type unmetered struct{}

// CSICall records nothing.
func (unmetered) CSICall(string, string, string, bool, time.Duration) {}

// emptyDriver is a driver whose volumes are empty directories.
type emptyDriver struct {
	spec.UnimplementedIdentityServer
	spec.UnimplementedNodeServer
}

// GetPluginInfo returns the driver's name.
func (emptyDriver) GetPluginInfo(context.Context, *spec.GetPluginInfoRequest) (*spec.GetPluginInfoResponse, error) {
	return &spec.GetPluginInfoResponse{Name: csiDriver}, nil
}

// NodeGetCapabilities returns none.
func (emptyDriver) NodeGetCapabilities(context.Context, *spec.NodeGetCapabilitiesRequest) (
	*spec.NodeGetCapabilitiesResponse, error) {
	return &spec.NodeGetCapabilitiesResponse{}, nil
}

// NodeGetInfo returns the node's ID.
func (emptyDriver) NodeGetInfo(context.Context, *spec.NodeGetInfoRequest) (*spec.NodeGetInfoResponse, error) {
	return &spec.NodeGetInfoResponse{NodeId: "bench"}, nil
}

// NodePublishVolume makes the volume.
func (emptyDriver) NodePublishVolume(_ context.Context, r *spec.NodePublishVolumeRequest) (
	*spec.NodePublishVolumeResponse, error) {
	return &spec.NodePublishVolumeResponse{}, os.Mkdir(r.GetTargetPath(), 0o750)
}

// NodeUnpublishVolume removes the volume.
func (emptyDriver) NodeUnpublishVolume(_ context.Context, r *spec.NodeUnpublishVolumeRequest) (
	*spec.NodeUnpublishVolumeResponse, error) {
	return &spec.NodeUnpublishVolumeResponse{}, os.Remove(r.GetTargetPath())
}

// csiTable compares deckhand's calls with bare ones.
func (m *measured) csiTable() report.Table {
	t := report.Table{
		Title: fmt.Sprintf("One inline volume of a CSI driver that answers at once (medians of %d; a durable write of a "+
			"file takes %s)", len(m.csi.publish), micro(report.Median(m.csi.write))),
		Columns: []string{"", "bare call", "deckhand", "ratio", "deckhand's part", "goal", ""},
	}
	row := func(name string, bare, took []time.Duration) {
		part := max(0, report.Median(took)-report.Median(bare))
		t.Add(name, micro(report.Median(bare)), micro(report.Median(took)),
			report.Ratio(report.Median(took), report.Median(bare)), micro(part), "≤ "+report.Duration(goalPublish),
			report.Result(part <= goalPublish))
	}
	if len(m.csi.publish) > 0 {
		row("published", m.csi.published, m.csi.publish)
		row("unpublished", m.csi.unpublished, m.csi.release)
	}
	return t
}
