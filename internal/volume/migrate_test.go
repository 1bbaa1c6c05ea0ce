package volume_test

import (
	"encoding/json"
	"errors"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/deckhand-node/deckhand/internal/volume"
)

func inlineSpec(s v1.VolumeSource) volume.Spec {
	return volume.Spec{Volume: &v1.Volume{Name: "data", VolumeSource: s}}
}

func persistentSpec(s v1.PersistentVolumeSource, change ...func(*v1.PersistentVolume)) volume.Spec {
	pv := &v1.PersistentVolume{ObjectMeta: metav1.ObjectMeta{Name: "pv-1"}, Spec: v1.PersistentVolumeSpec{
		PersistentVolumeSource: s, AccessModes: []v1.PersistentVolumeAccessMode{v1.ReadWriteOnce},
		ClaimRef: &v1.ObjectReference{Namespace: "shop", Name: "claim"}}}
	for _, c := range change {
		c(pv)
	}
	return volume.Spec{Volume: &v1.Volume{Name: "data", VolumeSource: v1.VolumeSource{
		PersistentVolumeClaim: &v1.PersistentVolumeClaimVolumeSource{ClaimName: "claim"}}},
		Claim: &v1.PersistentVolumeClaim{}, Persistent: pv}
}

const uri = "/subscriptions/s/resourceGroups/g/providers/Microsoft.Compute/disks/d"

// TestMigrate has the CSI source of each kind: it is what drivers get, by the documents of the drivers.
func TestMigrate(t *testing.T) {
	ebs := v1.AWSElasticBlockStoreVolumeSource{VolumeID: "aws://zone-a/vol-0123456789abcdef0", FSType: "ext4", Partition: 1, ReadOnly: true}
	disk := v1.AzureDiskVolumeSource{DiskName: "d", DataDiskURI: uri, FSType: ptr.To("xfs"),
		CachingMode: ptr.To(v1.AzureDataDiskCachingNone), ReadOnly: ptr.To(false), Kind: ptr.To(v1.AzureManagedDisk)}
	gce := v1.GCEPersistentDiskVolumeSource{PDName: "disk-1", FSType: "ext4", Partition: 2}
	vsphere := v1.VsphereVirtualDiskVolumeSource{VolumePath: "[store] dir/disk.vmdk", FSType: "ext4", StoragePolicyName: "gold"}
	portworx := v1.PortworxVolumeSource{VolumeID: "px-1", FSType: "ext4", ReadOnly: true}
	zone := func(pv *v1.PersistentVolume) { pv.Labels = map[string]string{v1.LabelTopologyZone: "zone-a"} }
	for name, c := range map[string]struct {
		spec volume.Spec
		// dir is the name of the volume's directory, csi its source.
		dir, csi string
		access   v1.PersistentVolumeAccessMode
	}{
		"awsElasticBlockStore": {inlineSpec(v1.VolumeSource{AWSElasticBlockStore: &ebs}), "ebs.csi.aws.com-vol-0123456789abcdef0",
			`{"driver":"ebs.csi.aws.com","volumeHandle":"vol-0123456789abcdef0","readOnly":true,"fsType":"ext4","volumeAttributes":{"partition":"1"}}`, v1.ReadWriteOnce},
		"awsElasticBlockStore, PV": {persistentSpec(v1.PersistentVolumeSource{AWSElasticBlockStore: &ebs}, zone), "pv-1",
			`{"driver":"ebs.csi.aws.com","volumeHandle":"vol-0123456789abcdef0","readOnly":true,"fsType":"ext4","volumeAttributes":{"partition":"1"}}`, v1.ReadWriteOnce},
		"azureDisk": {inlineSpec(v1.VolumeSource{AzureDisk: &disk}), strings.ReplaceAll(uri, "/", "~"),
			`{"driver":"disk.csi.azure.com","volumeHandle":"` + uri + `","fsType":"xfs","volumeAttributes":{"cachingmode":"None","fstype":"xfs","kind":"Managed"}}`, v1.ReadWriteOnce},
		"azureDisk, PV": {persistentSpec(v1.PersistentVolumeSource{AzureDisk: &disk}), "pv-1",
			`{"driver":"disk.csi.azure.com","volumeHandle":"` + uri + `","fsType":"xfs","volumeAttributes":{"cachingmode":"None","fstype":"xfs","kind":"Managed"}}`, v1.ReadWriteOnce},
		"azureFile": {inlineSpec(v1.VolumeSource{AzureFile: &v1.AzureFileVolumeSource{SecretName: "azure-storage-account-acc-secret", ShareName: "share", ReadOnly: true}}), "#acc#share#data#shop",
			`{"driver":"file.csi.azure.com","volumeHandle":"#acc#share#data#shop","readOnly":true,"volumeAttributes":{"sharename":"share"},"nodeStageSecretRef":{"name":"azure-storage-account-acc-secret","namespace":"shop"}}`, v1.ReadWriteMany},
		"azureFile, PV": {persistentSpec(v1.PersistentVolumeSource{AzureFile: &v1.AzureFilePersistentVolumeSource{SecretName: "azure-storage-account-acc-secret", ShareName: "share"}}), "pv-1",
			`{"driver":"file.csi.azure.com","volumeHandle":"#acc#share#pv-1#shop","volumeAttributes":{"sharename":"share"},"nodeStageSecretRef":{"name":"azure-storage-account-acc-secret","namespace":"shop"}}`, v1.ReadWriteOnce},
		"cinder": {inlineSpec(v1.VolumeSource{Cinder: &v1.CinderVolumeSource{VolumeID: "c-1", FSType: "ext4"}}), "cinder.csi.openstack.org-c-1",
			`{"driver":"cinder.csi.openstack.org","volumeHandle":"c-1","fsType":"ext4"}`, v1.ReadWriteOnce},
		"cinder, PV": {persistentSpec(v1.PersistentVolumeSource{Cinder: &v1.CinderPersistentVolumeSource{VolumeID: "c-1", ReadOnly: true}}), "pv-1",
			`{"driver":"cinder.csi.openstack.org","volumeHandle":"c-1","readOnly":true}`, v1.ReadWriteOnce},
		"gcePersistentDisk": {inlineSpec(v1.VolumeSource{GCEPersistentDisk: &gce}), "pd.csi.storage.gke.io-disk-1",
			`{"driver":"pd.csi.storage.gke.io","volumeHandle":"projects/UNSPECIFIED/zones/UNSPECIFIED/disks/disk-1","fsType":"ext4","volumeAttributes":{"partition":"2"}}`, v1.ReadWriteOnce},
		"gcePersistentDisk, PV": {persistentSpec(v1.PersistentVolumeSource{GCEPersistentDisk: &gce}, zone), "pv-1",
			`{"driver":"pd.csi.storage.gke.io","volumeHandle":"projects/UNSPECIFIED/zones/zone-a/disks/disk-1","fsType":"ext4","volumeAttributes":{"partition":"2"}}`, v1.ReadWriteOnce},
		"vsphereVolume": {inlineSpec(v1.VolumeSource{VsphereVolume: &vsphere}), "csi.vsphere.vmware.com-[store] dir~disk.vmdk",
			`{"driver":"csi.vsphere.vmware.com","volumeHandle":"[store] dir/disk.vmdk","fsType":"ext4","volumeAttributes":{"storagepolicyname":"gold"}}`, v1.ReadWriteOnce},
		"vsphereVolume, PV": {persistentSpec(v1.PersistentVolumeSource{VsphereVolume: &vsphere}), "pv-1",
			`{"driver":"csi.vsphere.vmware.com","volumeHandle":"[store] dir/disk.vmdk","fsType":"ext4","volumeAttributes":{"storagepolicyname":"gold"}}`, v1.ReadWriteOnce},
		"portworxVolume": {inlineSpec(v1.VolumeSource{PortworxVolume: &portworx}), "pxd.portworx.com-px-1",
			`{"driver":"pxd.portworx.com","volumeHandle":"px-1","fsType":"ext4"}`, v1.ReadOnlyMany},
		"portworxVolume, PV": {persistentSpec(v1.PersistentVolumeSource{PortworxVolume: &portworx}, func(pv *v1.PersistentVolume) {
			pv.Annotations = map[string]string{"openstorage.io/auth-secret-name": "key", "openstorage.io/auth-secret-namespace": "px"}
		}), "pv-1",
			`{"driver":"pxd.portworx.com","volumeHandle":"px-1","fsType":"ext4","controllerPublishSecretRef":{"name":"key","namespace":"px"},"nodeStageSecretRef":{"name":"key","namespace":"px"},"nodePublishSecretRef":{"name":"key","namespace":"px"},"controllerExpandSecretRef":{"name":"key","namespace":"px"},"nodeExpandSecretRef":{"name":"key","namespace":"px"}}`, v1.ReadWriteOnce},
	} {
		t.Run(name, func(t *testing.T) {
			kind, _, _ := strings.Cut(name, ",")
			if got := c.spec.Kind(); got != kind {
				t.Fatalf("the volume is of the kind %s", got)
			}
			before := [2]any{c.spec.Volume.DeepCopy(), c.spec.Persistent.DeepCopy()}
			got, err := c.spec.Migrate("shop")
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(before, [2]any{c.spec.Volume, c.spec.Persistent}); diff != "" {
				t.Errorf("the shared objects were changed:\n%s", diff)
			}
			if !got.Migrated || got.Kind() != "csi" || got.Name() != c.dir || got.Block() || got.Volume != c.spec.Volume ||
				len(got.Persistent.Spec.AccessModes) != 1 || got.Persistent.Spec.AccessModes[0] != c.access {
				t.Errorf("%s %s %+v", got.Name(), got.Kind(), got.Persistent.Spec)
			}
			text, err := json.Marshal(got.Persistent.Spec.CSI)
			if err != nil {
				t.Fatal(err)
			}
			if string(text) != c.csi {
				t.Errorf("got  %s\nwant %s", text, c.csi)
			}
			if again, err := got.Migrate("shop"); err != nil || again != got {
				t.Errorf("a migrated volume becomes %+v, %v", again, err)
			}
		})
	}
}

// A volume that a driver can't provide has an error that names the object and the reason.
func TestUntranslatable(t *testing.T) {
	kind := &v1.AzureDiskVolumeSource{DataDiskURI: "https://disk", Kind: ptr.To(v1.AzureSharedBlobDisk)}
	for want, s := range map[string]volume.Spec{
		"CSI drivers have replaced the kind azureDisk, and this volume can't be translated: kind(Shared) is not supported": inlineSpec(v1.VolumeSource{AzureDisk: kind}),
		"PersistentVolume pv-1: CSI drivers have replaced the kind azureDisk":                                              persistentSpec(v1.PersistentVolumeSource{AzureDisk: kind}),
		"Invalid format for AWS volume (aws://a/b)":                                                                        inlineSpec(v1.VolumeSource{AWSElasticBlockStore: &v1.AWSElasticBlockStoreVolumeSource{VolumeID: "aws://a/b"}}),
		"could not find a secret namespace":                                                                                persistentSpec(v1.PersistentVolumeSource{AzureFile: &v1.AzureFilePersistentVolumeSource{}}, func(pv *v1.PersistentVolume) { pv.Spec.ClaimRef = nil }),
	} {
		got, err := s.Migrate("shop")
		if err == nil || !strings.Contains(err.Error(), want) || got != s {
			t.Errorf("%+v, %v, want %q", got, err, want)
		}
		if errors.Is(err, volume.ErrUnsupported) {
			t.Errorf("%v: another build can't help", err)
		}
	}
}

func TestNothingToMigrate(t *testing.T) {
	for _, s := range []volume.Spec{
		inlineSpec(v1.VolumeSource{EmptyDir: &v1.EmptyDirVolumeSource{}}),
		persistentSpec(v1.PersistentVolumeSource{Local: &v1.LocalVolumeSource{}}),
		persistentSpec(v1.PersistentVolumeSource{CSI: &v1.CSIPersistentVolumeSource{Driver: "ebs.csi.aws.com"}}),
	} {
		if got, err := s.Migrate("shop"); err != nil || got != s {
			t.Errorf("%+v, %v", got, err)
		}
	}
}
