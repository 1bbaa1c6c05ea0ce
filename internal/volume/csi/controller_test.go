package csi

import (
	"context"
	"fmt"
	"math/rand/v2"
	"path/filepath"
	"testing"

	spec "github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	v1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"github.com/deckhand-node/deckhand/internal/cluster/nodefacts"
	"github.com/deckhand-node/deckhand/internal/pod/object"
	csidriver "github.com/deckhand-node/deckhand/test/csidriver/driver"
)

// controller attaches one volume. It doesn't detach it while a record of the volume is on the node, but its lists and
// objects may say so.
type controller struct {
	*rig
	handle string
	// made says that the driver has attached the volume, listed that the node's object says so.
	made, listed, away bool
	object             *storagev1.VolumeAttachment
	lists              *nodefacts.Writer
	uids               int
}

// newAttachRig is newRig for a driver whose volumes have to be attached.
func newAttachRig(t *testing.T, capabilities ...string) *rig {
	return startRig(t, csidriver.Options{Capabilities: capabilities, Args: []string{"--enable-attach"}}, nil)
}

func newController(r *rig) *controller {
	c := &controller{rig: r}
	c.call(func(of spec.ControllerClient) error {
		made, err := of.CreateVolume(r.Context(), &spec.CreateVolumeRequest{Name: "data", VolumeCapabilities: []*spec.VolumeCapability{anyUse()}})
		c.handle = made.GetVolume().GetVolumeId()
		return err
	})
	return c
}

func anyUse() *spec.VolumeCapability {
	return &spec.VolumeCapability{AccessType: &spec.VolumeCapability_Mount{Mount: &spec.VolumeCapability_MountVolume{}},
		AccessMode: &spec.VolumeCapability_AccessMode{Mode: spec.VolumeCapability_AccessMode_SINGLE_NODE_WRITER}}
}

func (c *controller) call(do func(spec.ControllerClient) error) {
	c.Helper()
	conn, err := grpc.NewClient("unix://"+c.driver.Endpoint, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err == nil {
		err = do(spec.NewControllerClient(conn))
		_ = conn.Close()
	}
	if err != nil {
		c.Fatal(err)
	}
}

func (c *controller) key() string { return deviceKey(driverName, c.handle) }

// publish writes the node's lists to the board, which is another one after each restart.
func (c *controller) publish() {
	lists, err := c.board.Writer("controller", nodefacts.InUse|nodefacts.ReportedInUse|nodefacts.VolumesAttached)
	if err != nil {
		c.Fatal(err)
	}
	c.lists = lists
	c.write()
}

func (c *controller) write() {
	name := v1.UniqueVolumeName(object.CSIPlugin + "/" + c.key())
	c.lists.Set(func(f *nodefacts.Facts) {
		f.InUse, f.ReportedInUse, f.VolumesAttached = []v1.UniqueVolumeName{name}, []v1.UniqueVolumeName{name}, nil
		if c.listed {
			f.VolumesAttached = []v1.AttachedVolume{{Name: name}}
		}
	})
}

// change is a random step of the controllers or of the API server.
func (c *controller) change(random *rand.Rand) (what string) {
	defer c.write()
	switch n := random.IntN(8); {
	case n < 3:
		if !c.made {
			c.call(func(of spec.ControllerClient) error {
				_, err := of.ControllerPublishVolume(c.Context(), &spec.ControllerPublishVolumeRequest{VolumeId: c.handle,
					NodeId: "node1", VolumeCapability: anyUse()})
				return err
			})
		}
		c.made, c.listed, c.away = true, true, false
		if c.object == nil || random.IntN(3) == 0 {
			c.uids++
		}
		c.object = &storagev1.VolumeAttachment{ObjectMeta: metav1.ObjectMeta{UID: types.UID(fmt.Sprint("va-", c.uids))},
			Spec: storagev1.VolumeAttachmentSpec{Attacher: driverName, NodeName: "node1"},
			Status: storagev1.VolumeAttachmentStatus{Attached: true,
				AttachmentMetadata: map[string]string{"device": fmt.Sprint(random.IntN(2))}}}
		return "attach as " + string(c.object.UID) + " " + c.object.Status.AttachmentMetadata["device"]
	case n < 5:
		if c.listed = false; random.IntN(2) == 0 {
			c.object = nil
		}
		return "detach under us"
	case n < 6:
		if c.object != nil {
			c.object = c.object.DeepCopy()
			c.object.DeletionTimestamp = &metav1.Time{}
		}
		return "delete the VolumeAttachment"
	case n < 7:
		c.away = !c.away
		return "the API server comes or goes"
	default:
		return fmt.Sprint("detach: ", c.detach())
	}
}

// detach detaches the volume unless records of it are left.
func (c *controller) detach() bool {
	for _, pattern := range []string{"pods/u-[cd]/volumes/*/*/" + recordName, "plugins/kubernetes.io/csi/*/*/" + recordName} {
		if left, _ := filepath.Glob(filepath.Join(c.root, pattern)); len(left) > 0 {
			return false
		}
	}
	if c.made {
		c.call(func(of spec.ControllerClient) error {
			_, err := of.ControllerUnpublishVolume(c.Context(), &spec.ControllerUnpublishVolumeRequest{VolumeId: c.handle, NodeId: "node1"})
			return err
		})
	}
	c.made, c.listed, c.object = false, false, nil
	return true
}

// attachView is a pod's view in a cluster.
type attachView struct {
	view
	of *controller
}

func (c *controller) view() object.View { return attachView{seeing(), c} }

func (attachView) Admitted() bool { return true }

func (v attachView) VolumeAttachment(_ context.Context, name string) (*storagev1.VolumeAttachment, error) {
	switch {
	case v.of.away:
		return nil, &object.Unknown{Key: object.Key{Kind: object.VolumeAttachment, Name: name}, Why: "no route", Away: true}
	case v.of.object == nil:
		return nil, apierrors.NewNotFound(schema.GroupResource{Resource: "volumeattachments"}, name)
	}
	return v.of.object, nil
}
