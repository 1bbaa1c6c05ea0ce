package spec_test

import (
	"slices"
	"testing"

	v1 "k8s.io/api/core/v1"
	"sigs.k8s.io/yaml"

	"github.com/deckhand-node/deckhand/internal/pod/spec"
)

func TestAPIReferences(t *testing.T) {
	for text, want := range map[string][]string{
		"{serviceAccountName: a}":         {"spec.serviceAccountName"},
		"{serviceAccount: a}":             {"spec.serviceAccountName"},
		"{imagePullSecrets: [{name: a}]}": {"spec.imagePullSecrets"},
		"{resourceClaims: [{name: a}]}":   {"spec.resourceClaims"},
		"{containers: [{env: [{name: a, value: b}, {name: c, valueFrom: {fieldRef: {fieldPath: metadata.name}}}, {name: d, valueFrom: {secretKeyRef: {name: s, key: k}}}, {name: e, valueFrom: {configMapKeyRef: {name: s, key: k}}}]}]}": {
			"spec.containers[0].env[2].valueFrom.secretKeyRef", "spec.containers[0].env[3].valueFrom.configMapKeyRef"},
		"{initContainers: [{envFrom: [{configMapRef: {name: a}}, {secretRef: {name: a}}]}]}": {"spec.initContainers[0].envFrom[0].configMapRef", "spec.initContainers[0].envFrom[1].secretRef"},
		"{ephemeralContainers: [{envFrom: [{secretRef: {name: a}}]}]}":                       {"spec.ephemeralContainers[0].envFrom[0].secretRef"},
		"{volumes: [{configMap: {}}, {secret: {}}, {persistentVolumeClaim: {claimName: a}}, {ephemeral: {}}, {csi: {driver: d}}, {azureFile: {secretName: a, shareName: b}}, {glusterfs: {endpoints: e, path: p}}]}": {
			"spec.volumes[0].configMap", "spec.volumes[1].secret", "spec.volumes[2].persistentVolumeClaim", "spec.volumes[3].ephemeral", "spec.volumes[4].csi", "spec.volumes[5].azureFile", "spec.volumes[6].glusterfs"},
		"{volumes: [{rbd: {image: i, secretRef: {name: a}}}, {cephfs: {secretRef: {name: a}}}, {cinder: {volumeID: v, secretRef: {name: a}}}, {flexVolume: {driver: d, secretRef: {name: a}}}, {iscsi: {secretRef: {name: a}}}, {scaleIO: {secretRef: {name: a}}}, {storageos: {secretRef: {name: a}}}]}": {
			"spec.volumes[0].rbd.secretRef", "spec.volumes[1].cephfs.secretRef", "spec.volumes[2].cinder.secretRef", "spec.volumes[3].flexVolume.secretRef", "spec.volumes[4].iscsi.secretRef", "spec.volumes[5].scaleIO.secretRef", "spec.volumes[6].storageos.secretRef"},
		"{volumes: [{projected: {sources: [{configMap: {name: a}}, {secret: {name: a}}, {downwardAPI: {}}, {serviceAccountToken: {path: p}}, {clusterTrustBundle: {path: p}}, {podCertificate: {}}]}}]}": {
			"spec.volumes[0].projected.sources[0].configMap", "spec.volumes[0].projected.sources[1].secret", "spec.volumes[0].projected.sources[3].serviceAccountToken",
			"spec.volumes[0].projected.sources[4].clusterTrustBundle", "spec.volumes[0].projected.sources[5].podCertificate"},
		"{volumes: [{emptyDir: {}}, {hostPath: {path: /x}}, {downwardAPI: {}}, {image: {reference: i}}, {nfs: {server: s, path: p}}, {iscsi: {iqn: i}}, {rbd: {image: i}}, {projected: {sources: [{downwardAPI: {}}]}}], runtimeClassName: r, priorityClassName: p}": nil,
	} {
		var p v1.Pod
		if err := yaml.UnmarshalStrict([]byte("spec: "+text), &p); err != nil {
			t.Fatal(text, err)
		}
		var got []string
		for _, e := range spec.APIReferences(&p) {
			got = append(got, e.Field)
		}
		if !slices.Equal(got, want) {
			t.Errorf("%s: %q, want %q", text, got, want)
		}
	}
}
