package spec

import (
	"strings"
	"testing"
)

const v0 = "spec.volumes[0]"

func TestVolumeRules(t *testing.T) {
	runRules(t, []ruleCase{
		{"{volumes: [{emptyDir: {}}, {name: A, emptyDir: {}}, {name: b}, {name: b}]}", "Required " + v0 + ".name\nInvalid spec.volumes[1].name\nDuplicate spec.volumes[3].name"},
		{vol("emptyDir: {}, hostPath: {path: /a}, nfs: {server: s, path: /p}"), "Forbidden " + v0 + ".emptyDir\nForbidden " + v0 + ".nfs"},
		{vol("emptyDir: {medium: Tape}"), "NotSupported " + v0 + ".emptyDir.medium"},
		{vol("emptyDir: {medium: HugePages-x}"), "NotSupported " + v0 + ".emptyDir.medium"},
		{vol("emptyDir: {medium: HugePages-2Mi, sizeLimit: 1Gi}"), ""},
		{vol("emptyDir: {sizeLimit: -1}"), "Forbidden " + v0 + ".emptyDir.sizeLimit"},
		{vol("hostPath: {path: ''}"), "Required " + v0 + ".hostPath.path"},
		{vol("hostPath: {path: /a/../b}"), "Invalid " + v0 + ".hostPath.path"},
		{vol("hostPath: {path: /a, type: Door}"), "NotSupported " + v0 + ".hostPath.type"},
		{vol("gitRepo: {repository: '', directory: /a}"), "Required " + v0 + ".gitRepo.repository\nInvalid " + v0 + ".gitRepo.directory"},
		{vol("image: {}"), "Required " + v0 + ".image.reference"},
		{vol("image: {reference: a, pullPolicy: x}"), "NotSupported " + v0 + ".image.pullPolicy"},
		{vol("image: {reference: 'a '}"), "Invalid " + v0 + ".image.reference"},
	})
}

func TestFileVolumeRules(t *testing.T) {
	const d, p = v0 + ".downwardAPI.items[0]", v0 + ".projected"
	runRules(t, []ruleCase{
		{vol("secret: {defaultMode: 0o1000}"), "Required " + v0 + ".secret.secretName\nInvalid " + v0 + ".secret.defaultMode"},
		{vol("secret: {secretName: s, items: [{}]}"), "Required " + v0 + ".secret.items[0].key\nRequired " + v0 + ".secret.items[0].path"},
		{vol("secret: {secretName: s, items: [{key: k, path: /a, mode: -1}, {key: k, path: a/../b}, {key: k, path: ..b}]}"),
			"Invalid " + v0 + ".secret.items[0].path\nInvalid " + v0 + ".secret.items[0].mode\nInvalid " + v0 + ".secret.items[1].path\nInvalid " + v0 + ".secret.items[2].path"},
		{vol("configMap: {defaultMode: 512, items: [{key: k}]}"), "Required " + v0 + ".configMap.name\nInvalid " + v0 + ".configMap.defaultMode\nRequired " + v0 + ".configMap.items[0].path"},
		{vol("downwardAPI: {defaultMode: -1, items: [{path: a}]}"), "Invalid " + v0 + ".downwardAPI.defaultMode\nRequired " + d},
		{vol("downwardAPI: {items: [{mode: -1, fieldRef: {fieldPath: metadata.labels}}]}"), "Required " + d + ".path\nInvalid " + d + ".mode"},
		{vol("downwardAPI: {items: [{path: a, fieldRef: {fieldPath: metadata.name}, resourceFieldRef: {containerName: c, resource: limits.cpu}}]}"), "Invalid " + d},
		{vol("downwardAPI: {items: [{path: a, fieldRef: {fieldPath: status.podIP}}]}"), "NotSupported " + d + ".fieldRef.fieldPath"},
		{vol("downwardAPI: {items: [{path: a, resourceFieldRef: {resource: limits.cpu}}]}"), "Required " + d + ".resourceFieldRef.containerName"},
		{vol("projected: {defaultMode: -1, sources: [{}]}"), "Invalid " + p + ".defaultMode\nRequired " + p + ".sources[0]"},
		{vol("projected: {sources: [{secret: {name: s}, configMap: {name: s}}]}"), "Forbidden " + p + ".sources[0].configMap"},
		{vol("projected: {sources: [{secret: {items: [{key: k}]}}, {configMap: {items: [{path: a}]}}, {downwardAPI: {items: [{path: b}]}}]}"),
			"Required " + p + ".sources[0].secret.name\nRequired " + p + ".sources[0].secret.items[0].path\nRequired " + p + ".sources[1].configMap.name\nRequired " + p + ".sources[1].configMap.items[0].key\nRequired " + p + ".sources[2].downwardAPI.items[0]"},
		{vol("projected: {sources: [{secret: {name: s, items: [{key: k, path: a/b}]}}, {configMap: {name: s, items: [{key: k, path: a//b}]}}, {serviceAccountToken: {path: a/b}}]}"),
			"Duplicate " + p + ".sources[1].configMap.items[0].path\nDuplicate " + p + ".sources[2].serviceAccountToken.path"},
		{vol("projected: {sources: [{serviceAccountToken: {path: '', expirationSeconds: 599}}, {serviceAccountToken: {path: a, expirationSeconds: 4294967297}}]}"),
			"Invalid " + p + ".sources[0].serviceAccountToken.expirationSeconds\nRequired " + p + ".sources[0].serviceAccountToken.path\nInvalid " + p + ".sources[1].serviceAccountToken.expirationSeconds"},
	})
}

func TestCertificateVolumeRules(t *testing.T) {
	const b, p = v0 + ".projected.sources[0].clusterTrustBundle", v0 + ".projected.sources[0].podCertificate"
	bundle := func(f string) string {
		return vol("projected: {sources: [{clusterTrustBundle: {path: x, " + f + "}}]}")
	}
	cert := func(f string) string { return vol("projected: {sources: [{podCertificate: {" + f + "}}]}") }
	runRules(t, []ruleCase{
		{bundle("name: 'a.b:c:d'"), ""},
		{bundle("signerName: a.b/c, labelSelector: {}"), ""},
		{bundle("optional: true"), "Required " + b},
		{bundle("name: a, signerName: a.b/c"), "Invalid " + b},
		{bundle("name: A"), "Invalid " + b + ".name"},
		{bundle("signerName: x"), "Invalid " + b + ".signerName"},
		{bundle("signerName: ''"), "Required " + b + ".signerName"},
		{bundle("name: a, labelSelector: {}"), "Invalid " + b + ".labelSelector"},
		{vol("projected: {sources: [{clusterTrustBundle: {name: a, path: ../x}}]}"), "Invalid " + b + ".path"},
		{cert("signerName: a.b/c, keyType: ED25519, keyPath: k, certificateChainPath: c, userAnnotations: {a.b/c: d}"), ""},
		{cert(""), "Required " + p + ".signerName\nRequired " + p + ".keyType\nRequired " + p},
		{cert("signerName: a.b/c, keyType: DSA, credentialBundlePath: /a, maxExpirationSeconds: 3599"), "NotSupported " + p + ".keyType\nInvalid " + p + ".maxExpirationSeconds\nInvalid " + p + ".credentialBundlePath"},
		{cert("signerName: a.b/c, keyType: RSA3072, credentialBundlePath: a, maxExpirationSeconds: 7862401"), "Invalid " + p + ".maxExpirationSeconds"},
		{cert("signerName: a.b/c, keyType: RSA3072, keyPath: a, certificateChainPath: a"), "Duplicate " + p + ".certificateChainPath"},
		{cert("signerName: a.b/c, keyType: RSA3072, keyPath: a, userAnnotations: {plain: d}"), "Invalid " + p + ".userAnnotations[plain]"},
	})
}

func TestClaimVolumeRules(t *testing.T) {
	const e = v0 + ".ephemeral.volumeClaimTemplate"
	eph := func(f string) string { return vol("ephemeral: {volumeClaimTemplate: {" + f + "}}") }
	const good = "accessModes: [ReadWriteOnce], resources: {requests: {storage: 1Gi}}"
	runRules(t, []ruleCase{
		{vol("persistentVolumeClaim: {claimName: ''}"), "Required " + v0 + ".persistentVolumeClaim.claimName"},
		{vol("csi: {driver: ''}"), "Required " + v0 + ".csi.driver"},
		{vol("csi: {driver: 'a b', nodePublishSecretRef: {}}"), "Invalid " + v0 + ".csi.driver\nRequired " + v0 + ".csi.nodePublishSecretRef.name"},
		{vol("csi: {driver: " + strings.Repeat("a", 64) + "}"), "TooLong " + v0 + ".csi.driver"},
		{vol("ephemeral: {}"), "Required " + e},
		{eph("metadata: {labels: {a: b}, annotations: {c: d}}, spec: {" + good + "}"), ""},
		{eph("metadata: {name: x, labels: {a: 'b c'}}, spec: {" + good + "}"), "Invalid " + e + ".metadata.labels\nForbidden " + e + ".metadata"},
		{eph("spec: {}"), "Required " + e + ".spec.accessModes\nRequired " + e + ".spec.resources.requests[storage]"},
		{eph("spec: {accessModes: [ReadWriteOncePod, Some], resources: {requests: {storage: 0}}}"), "NotSupported " + e + ".spec.accessModes[1]\nForbidden " + e + ".spec.accessModes\nInvalid " + e + ".spec.resources.requests[storage]"},
		{eph("spec: {storageClassName: A, volumeAttributesClassName: A, volumeMode: Tape, " + good + "}"), "Invalid " + e + ".spec.storageClassName\nInvalid " + e + ".spec.volumeAttributesClassName\nNotSupported " + e + ".spec.volumeMode"},
		{eph("spec: {selector: {matchLabels: {a: 'b c'}}, " + good + "}"), "Invalid " + e + ".spec.selector.matchLabels"},
		{eph("spec: {dataSource: {kind: Secret, name: ''}, dataSourceRef: {kind: '', name: x}, " + good + "}"), "Required " + e + ".spec.dataSource.name\nInvalid " + e + ".spec.dataSource\nRequired " + e + ".spec.dataSourceRef.kind"},
	})
	p := podOf(t, eph("spec: {"+good+"}"))
	p.Name = strings.Repeat("a", 252)
	if errs := Validate(p); describe(errs) != "Invalid "+v0+".name" {
		t.Errorf("a claim's name that is too long: %v", errs.ToAggregate())
	}
}

func TestNetworkVolumeRules(t *testing.T) {
	const i = v0 + ".iscsi"
	const good = "targetPortal: p, iqn: 'iqn.2001-04.com.example:storage'"
	runRules(t, []ruleCase{
		{vol("nfs: {server: '', path: ''}"), "Required " + v0 + ".nfs.server\nRequired " + v0 + ".nfs.path"},
		{vol("nfs: {server: s, path: a}"), "Invalid " + v0 + ".nfs.path"},
		{vol("iscsi: {" + good + ", lun: 0}"), ""},
		{vol("iscsi: {targetPortal: p, iqn: eui.0123456789ABCDEF, lun: 0, initiatorName: naa.62004567BA64678D0123456789ABCDEF}"), ""},
		{vol("iscsi: {targetPortal: '', iqn: '', lun: 256}"), "Required " + i + ".targetPortal\nRequired " + i + ".iqn\nInvalid " + i + ".lun"},
		{vol("iscsi: {targetPortal: p, iqn: x, lun: -1, initiatorName: z}"), "Invalid " + i + ".iqn\nInvalid " + i + ".lun\nInvalid " + i + ".initiatorName"},
		{vol("iscsi: {" + good + ", lun: 0, chapAuthSession: true}"), "Required " + i + ".secretRef"},
		{vol("iscsi: {" + good + ", lun: 0, chapAuthDiscovery: true, secretRef: {}}"), "Required " + i + ".secretRef.name"},
		{vol("fc: {}"), "Required " + v0 + ".fc.targetWWNs"},
		{vol("fc: {targetWWNs: [a], wwids: [b]}"), "Invalid " + v0 + ".fc.targetWWNs"},
		{vol("fc: {targetWWNs: [a]}"), "Required " + v0 + ".fc.lun"},
		{vol("fc: {targetWWNs: [a], lun: 256}"), "Invalid " + v0 + ".fc.lun"},
		{vol("fc: {wwids: [b]}"), ""},
		{vol("glusterfs: {endpoints: '', path: ''}"), "Required " + v0 + ".glusterfs.endpoints\nRequired " + v0 + ".glusterfs.path"},
		{vol("rbd: {monitors: [], image: ''}"), "Required " + v0 + ".rbd.monitors\nRequired " + v0 + ".rbd.image"},
		{vol("cephfs: {monitors: []}"), "Required " + v0 + ".cephfs.monitors"},
		{vol("quobyte: {registry: '', volume: ''}"), "Required " + v0 + ".quobyte.registry\nRequired " + v0 + ".quobyte.volume"},
		{vol("quobyte: {registry: 'a:1,b', volume: v, tenant: " + strings.Repeat("a", 64) + "}"), "Invalid " + v0 + ".quobyte.registry\nRequired " + v0 + ".quobyte.tenant"},
		{vol("flocker: {}"), "Required " + v0 + ".flocker"},
		{vol("flocker: {datasetName: a/b, datasetUUID: c}"), "Invalid " + v0 + ".flocker\nInvalid " + v0 + ".flocker.datasetName"},
		{vol("flexVolume: {driver: '', options: {x.k8s.io/a: b, c: d}}"), "Required " + v0 + ".flexVolume.driver\nInvalid " + v0 + ".flexVolume.options[x.k8s.io/a]"},
	})
}

func TestCloudVolumeRules(t *testing.T) {
	runRules(t, []ruleCase{
		{vol("gcePersistentDisk: {pdName: '', partition: 256}"), "Required " + v0 + ".gcePersistentDisk.pdName\nInvalid " + v0 + ".gcePersistentDisk.partition"},
		{vol("awsElasticBlockStore: {volumeID: '', partition: -1}"), "Required " + v0 + ".awsElasticBlockStore.volumeID\nInvalid " + v0 + ".awsElasticBlockStore.partition"},
		{vol("cinder: {volumeID: '', secretRef: {}}"), "Required " + v0 + ".cinder.volumeID\nRequired " + v0 + ".cinder.secretRef.name"},
		{vol("azureFile: {secretName: '', shareName: ''}"), "Required " + v0 + ".azureFile.secretName\nRequired " + v0 + ".azureFile.shareName"},
		{vol("azureDisk: {diskName: '', diskURI: ''}"), "Required " + v0 + ".azureDisk.diskName\nRequired " + v0 + ".azureDisk.diskURI"},
		{vol("azureDisk: {diskName: d, diskURI: /subscriptions/x, cachingMode: x, kind: Managed}"), "NotSupported " + v0 + ".azureDisk.cachingMode"},
		{vol("azureDisk: {diskName: d, diskURI: x, kind: x}"), "NotSupported " + v0 + ".azureDisk.kind\nInvalid " + v0 + ".azureDisk.diskURI"},
		{vol("azureDisk: {diskName: d, diskURI: 'https://x', kind: Managed}"), "Invalid " + v0 + ".azureDisk.diskURI"},
		{vol("vsphereVolume: {volumePath: ''}"), "Required " + v0 + ".vsphereVolume.volumePath"},
		{vol("photonPersistentDisk: {pdID: ''}"), "Required " + v0 + ".photonPersistentDisk.pdID"},
		{vol("portworxVolume: {volumeID: ''}"), "Required " + v0 + ".portworxVolume.volumeID"},
		{vol("scaleIO: {gateway: '', system: '', secretRef: {name: s}}"), "Required " + v0 + ".scaleIO.gateway\nRequired " + v0 + ".scaleIO.system\nRequired " + v0 + ".scaleIO.volumeName"},
		{vol("storageos: {secretRef: {}}"), "Required " + v0 + ".storageos.volumeName\nRequired " + v0 + ".storageos.secretRef.name"},
		{vol("storageos: {volumeName: a, volumeNamespace: A}"), "Invalid " + v0 + ".storageos.volumeNamespace"},
	})
}
