package spec

import (
	"reflect"
	"strings"
	"testing"

	v1 "k8s.io/api/core/v1"

	"github.com/deckhand-node/deckhand/internal/pod/object"
)

func TestPersistentVolumeClaimRules(t *testing.T) {
	spec := func(s string) string {
		if !strings.Contains(s, "accessModes:") {
			s += ", accessModes: [ReadWriteOnce]"
		}
		if !strings.Contains(s, "resources:") {
			s += ", resources: {requests: {storage: 1Gi}}"
		}
		return "spec: {" + s + "}"
	}
	objectRules(t, object.PersistentVolumeClaim, []objectCase{
		{"metadata: {name: a.b}, " + spec("volumeName: x, volumeMode: Block"), ""},
		{spec("storageClassName: '', selector: {matchLabels: {a: b}}, dataSource: {kind: PersistentVolumeClaim, name: x}"), ""},
		{"metadata: {}", "Required metadata.name\nRequired spec.accessModes\nRequired spec.resources.requests[storage]"},
		{spec("accessModes: [ReadWriteOnce, ReadWriteOncePod, ReadOften, '']"), "NotSupported spec.accessModes[2]\nRequired spec.accessModes[3]\nForbidden spec.accessModes"},
		{spec("resources: {requests: {storage: 0}}"), "Invalid spec.resources.requests[storage]"},
		{spec("resources: {requests: {memory: 1Gi}}"), "Required spec.resources.requests[storage]"},
		{spec("storageClassName: A, volumeAttributesClassName: B, volumeMode: Tape"), "Invalid spec.storageClassName\nInvalid spec.volumeAttributesClassName\nNotSupported spec.volumeMode"},
		{spec("selector: {matchExpressions: [{key: a, operator: Near}]}"), "Invalid spec.selector.matchExpressions[0].operator"},
		{spec("dataSource: {kind: VolumeSnapshot}, dataSourceRef: {name: x}"), "Required spec.dataSource.name\nInvalid spec.dataSource\nRequired spec.dataSourceRef.kind"},
	})
}

func TestPersistentVolumeRules(t *testing.T) {
	spec := func(s string) string {
		for _, usual := range []string{"capacity: {storage: 1Gi}", "accessModes: [ReadWriteOnce]", "hostPath: {path: /a}"} {
			if key, _, _ := strings.Cut(usual, " "); !strings.Contains(s, key) && (key != "hostPath:" || !strings.Contains(s, "source: ")) {
				s += ", " + usual
			}
		}
		return "spec: {" + strings.Replace(s, "source: ", "", 1) + "}"
	}
	const affinity = "nodeAffinity: {required: {nodeSelectorTerms: [{matchExpressions: [{key: kubernetes.io/hostname, operator: In, values: [node1]}]}]}}"
	const terms = "spec.nodeAffinity.required.nodeSelectorTerms"
	objectRules(t, object.PersistentVolume, []objectCase{
		{"metadata: {name: a.b}, " + spec("persistentVolumeReclaimPolicy: Retain, mountOptions: [noatime, ''], storageClassName: fast, volumeMode: Block"), ""},
		{"metadata: {name: a, namespace: default}, " + spec("capacity: {storage: 1}"), "Forbidden metadata.namespace"},
		{"metadata: {name: a}, spec: {}", "Required spec.capacity[storage]\nRequired spec.accessModes\nRequired spec"},
		{spec("capacity: {storage: 0}"), "Invalid spec.capacity[storage]"},
		{spec("capacity: {storage: -1, cpu: 1}"), "Invalid spec.capacity[storage]\nNotSupported spec.capacity[cpu]"},
		{spec("accessModes: [ReadWriteOncePod, ReadOnlyMany]"), "Forbidden spec.accessModes"},
		{spec("accessModes: [Never]"), "NotSupported spec.accessModes[0]"},
		{spec("persistentVolumeReclaimPolicy: Delete"), ""},
		{spec("persistentVolumeReclaimPolicy: Recycle"), ""},
		{spec("persistentVolumeReclaimPolicy: Recycle, hostPath: {path: /}"), "Forbidden spec.persistentVolumeReclaimPolicy"},
		{spec("persistentVolumeReclaimPolicy: Burn"), "NotSupported spec.persistentVolumeReclaimPolicy"},
		{spec("storageClassName: 'A b', volumeMode: Tape"), "Invalid spec.storageClassName\nNotSupported spec.volumeMode"},
		{spec("claimRef: {namespace: a, name: b, uid: c, kind: PersistentVolumeClaim}"), ""},
		{spec("claimRef: {}"), "Required spec.claimRef.namespace\nRequired spec.claimRef.name"},
		{spec("claimRef: {kind: Pod, namespace: a.b, name: '-'}"), "NotSupported spec.claimRef.kind\nInvalid spec.claimRef.namespace\nInvalid spec.claimRef.name"},
		{spec("hostPath: {path: ''}"), "Required spec.hostPath.path"},
		{spec("hostPath: {path: /a/../b, type: Door}"), "Invalid spec.hostPath.path\nNotSupported spec.hostPath.type"},
		{spec("source: local: {path: /mnt/disk}, " + affinity), ""},
		{spec("source: local: {path: /mnt/disk}"), "Required spec.nodeAffinity.required"},
		{spec("source: local: {path: /mnt/../disk}, nodeAffinity: {}"), "Invalid spec.local.path\nRequired spec.nodeAffinity.required"},
		{spec("source: local: {path: mnt}, " + affinity), "Invalid spec.local.path"},
		{spec("source: local: {path: ''}, " + affinity), "Required spec.local.path"},
		{spec("local: {path: /a}, " + affinity), "Forbidden spec.local"},
		{spec("nodeAffinity: {}"), "Required spec.nodeAffinity.required"},
		{spec("nodeAffinity: {required: {nodeSelectorTerms: []}}"), "Required " + terms},
		{spec("nodeAffinity: {required: {nodeSelectorTerms: [{matchExpressions: [{key: 'a b', operator: In}, {key: a, operator: Near}]}]}}"),
			"Required " + terms + "[0].matchExpressions[0].values\nInvalid " + terms + "[0].matchExpressions[0].key\nNotSupported " + terms + "[0].matchExpressions[1].operator"},
		{spec("volumeAttributesClassName: gold"), "Forbidden spec.volumeAttributesClassName"},
		{spec("volumeAttributesClassName: '', source: csi: {driver: a.b, volumeHandle: c}"), "Required spec.volumeAttributesClassName"},
	})
}

// Every source that the API has may be in a manifest; what this build can't mount is told when it is used.
func TestPersistentVolumeSources(t *testing.T) {
	good := map[string]string{
		"gcePersistentDisk": "pdName: a", "awsElasticBlockStore": "volumeID: a", "hostPath": "path: /a", "glusterfs": "endpoints: a, path: b, endpointsNamespace: c",
		"nfs": "server: a, path: /b", "rbd": "monitors: [a], image: b, secretRef: {name: x}", "iscsi": "targetPortal: a, iqn: 'iqn.2001-04.com.example:x', lun: 1, chapAuthSession: true, secretRef: {name: a}",
		"cinder": "volumeID: a, secretRef: {name: a, namespace: b}", "cephfs": "monitors: [a]", "fc": "wwids: [a]", "flocker": "datasetName: a", "flexVolume": "driver: a/b",
		"azureFile": "secretName: a, shareName: b, secretNamespace: c", "vsphereVolume": "volumePath: a", "quobyte": "registry: 'a:1', volume: b",
		"azureDisk": "diskName: a, diskURI: 'https://x', kind: Shared", "photonPersistentDisk": "pdID: a", "portworxVolume": "volumeID: a",
		"scaleIO": "gateway: a, system: b, volumeName: c, secretRef: {name: d}", "local": "path: /a", "storageos": "volumeName: a, secretRef: {name: a, namespace: b}",
		"csi": "driver: a.b, volumeHandle: c, nodeStageSecretRef: {name: a, namespace: b}",
	}
	bad := map[string]objectCase{
		"gcePersistentDisk":    {"partition: 256", "Required pdName\nInvalid partition"},
		"awsElasticBlockStore": {"volumeID: ''", "Required volumeID"},
		"hostPath":             {"path: ..", "Invalid path"},
		"glusterfs":            {"endpointsNamespace: ''", "Required endpoints\nRequired path\nRequired endpointsNamespace"},
		"nfs":                  {"path: a", "Required server\nInvalid path"},
		"rbd":                  {"monitors: []", "Required monitors\nRequired image"},
		"iscsi":                {"targetPortal: a, iqn: x, chapAuthDiscovery: true", "Invalid iqn\nRequired secretRef"},
		"cinder":               {"volumeID: a, secretRef: {}", "Required secretRef.name\nRequired secretRef.namespace"},
		"cephfs":               {"monitors: []", "Required monitors"},
		"fc":                   {"targetWWNs: [a]", "Required lun"},
		"flocker":              {"datasetName: a/b", "Invalid datasetName"},
		"flexVolume":           {"options: {k8s.io/x: z}", "Required driver\nInvalid options[k8s.io/x]"},
		"azureFile":            {"secretNamespace: ''", "Required secretName\nRequired shareName\nRequired secretNamespace"},
		"vsphereVolume":        {"volumePath: ''", "Required volumePath"},
		"quobyte":              {"registry: a", "Invalid registry\nRequired volume"},
		"azureDisk":            {"diskName: a, diskURI: x, kind: Managed", "Invalid diskURI"},
		"photonPersistentDisk": {"pdID: ''", "Required pdID"},
		"portworxVolume":       {"volumeID: ''", "Required volumeID"},
		"scaleIO":              {"gateway: a, system: b", "Required volumeName"},
		"local":                {"path: a", "Invalid path"},
		"storageos":            {"volumeName: A, secretRef: {}", "Invalid volumeName\nRequired secretRef.name\nRequired secretRef.namespace"},
		"csi":                  {"driver: a_b, nodePublishSecretRef: {name: a}", "Invalid driver\nRequired volumeHandle\nRequired nodePublishSecretRef.namespace"},
	}
	manifest := func(kind, fields string) string {
		text := "metadata: {name: x}, spec: {capacity: {storage: 1Gi}, accessModes: [ReadWriteOnce], " + kind + ": {" + fields + "}"
		if kind == "local" {
			text += ", nodeAffinity: {required: {nodeSelectorTerms: [{matchExpressions: [{key: a, operator: Exists}]}]}}"
		}
		return text + "}"
	}
	source := reflect.TypeFor[v1.PersistentVolumeSource]()
	for i := range source.NumField() {
		kind, _, _ := strings.Cut(source.Field(i).Tag.Get("json"), ",")
		wrong, known := bad[kind]
		if good[kind] == "" || !known {
			t.Errorf("no test of %s", kind)
		}
		var want []string
		for line := range strings.SplitSeq(wrong.want, "\n") {
			what, path, _ := strings.Cut(line, " ")
			want = append(want, what+" spec."+kind+"."+path)
		}
		objectRules(t, object.PersistentVolume, []objectCase{{manifest(kind, good[kind]), ""}, {manifest(kind, wrong.text), strings.Join(want, "\n")}})
	}
}
