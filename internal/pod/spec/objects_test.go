package spec

import (
	"bytes"
	"fmt"
	"os"
	"reflect"
	"strings"
	"testing"

	v1 "k8s.io/api/core/v1"
	nodev1 "k8s.io/api/node/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"

	"github.com/deckhand-node/deckhand/internal/pod/manifest"
	"github.com/deckhand-node/deckhand/internal/pod/object"
)

// objectOf returns the object that a text holds, with its defaults.
func objectOf(t *testing.T, kind object.Kind, text string) object.Object {
	t.Helper()
	docs := manifest.Decode(fmt.Appendf(nil, "{apiVersion: %s, kind: %s, %s}", kind.APIVersion(), kind, text))
	if len(docs) != 1 || docs[0].Object == nil || len(docs[0].Errors) > 0 {
		t.Fatalf("%s: %+v", text, docs)
	}
	o := docs[0].Object
	SetObjectDefaults(o)
	return o
}

// objectCase is an object, in part, and the errors it must have.
type objectCase struct{ text, want string }

func objectRules(t *testing.T, kind object.Kind, cases []objectCase) {
	t.Helper()
	for _, c := range cases {
		text := c.text
		if !strings.Contains(text, "metadata:") {
			text = "metadata: {name: x}, " + text
		}
		if errs := ValidateObject(objectOf(t, kind, text)); describe(errs) != c.want {
			t.Errorf("%s: got\n%v\nwant\n%s", c.text, errs.ToAggregate(), c.want)
		}
	}
}

func TestObjectMetadata(t *testing.T) {
	for _, kind := range []object.Kind{object.ConfigMap, object.Secret, object.ServiceAccount} {
		objectRules(t, kind, []objectCase{
			{"metadata: {name: a.b-c, labels: {app: x}}", ""},
			{"metadata: {}", "Required metadata.name"},
			{"metadata: {name: A_b, namespace: '-'}", "Invalid metadata.name\nInvalid metadata.namespace"},
			{"metadata: {name: a, labels: {app: 'a b'}}", "Invalid metadata.labels"},
		})
	}
	objectRules(t, object.RuntimeClass, []objectCase{
		{"metadata: {name: a.b}, handler: runc", ""},
		{"metadata: {name: a, namespace: default}, handler: runc", "Forbidden metadata.namespace"},
	})
	objectRules(t, object.CSIDriver, []objectCase{
		{"metadata: {name: csi.example.com}", ""},
		{"metadata: {}", "Required metadata.name"},
		{"metadata: {name: csi.Example.com, namespace: default}", "Invalid metadata.name\nForbidden metadata.namespace"},
		{"metadata: {name: " + strings.Repeat("a", 63) + "}", ""},
		{"metadata: {name: " + strings.Repeat("a", 64) + "}", "TooLong metadata.name"},
	})
	objectRules(t, object.Service, []objectCase{
		{"metadata: {name: 1a}, spec: {ports: [{port: 1}]}", ""}, // KEP-5311
		{"metadata: {name: a.b}, spec: {ports: [{port: 1}]}", "Invalid metadata.name"},
	})
}

func TestConfigMapRules(t *testing.T) {
	objectRules(t, object.ConfigMap, []objectCase{
		{"data: {a.b-c_D: x, .hidden: ''}, binaryData: {k: AA==}", ""},
		{"data: {'a b': x, '..': b, '': z}", "Required data[]\nInvalid data[..]\nInvalid data[a b]"},
		{"data: {a: x}, binaryData: {a: AA==, 'b/c': AA==}", "Invalid data[a]\nInvalid binaryData[b/c]"},
		{"data: {a: " + strings.Repeat("x", v1.MaxSecretSize) + "}", ""},
		{"data: {a: " + strings.Repeat("x", v1.MaxSecretSize) + "}, binaryData: {b: AA==}", "TooLong data"},
	})
}

func TestSecretRules(t *testing.T) {
	objectRules(t, object.Secret, []objectCase{
		{"stringData: {a: b}", ""},
		{"type: example.com/own, data: {}", ""},
		{"stringData: {'a/b': x}", "Invalid data[a/b]"},
		{"stringData: {a: " + strings.Repeat("x", v1.MaxSecretSize+1) + "}", "TooLong data"},
		{"type: kubernetes.io/dockerconfigjson, stringData: {.dockerconfigjson: '{\"auths\": {}}'}", ""},
		{"type: kubernetes.io/dockerconfigjson, stringData: {.dockercfg: '{}'}", "Required data[.dockerconfigjson]"},
		{"type: kubernetes.io/dockerconfigjson, stringData: {.dockerconfigjson: '[]'}", "Invalid data[.dockerconfigjson]"},
		{"type: kubernetes.io/dockerconfigjson, stringData: {.dockerconfigjson: 'hunter2'}", "Invalid data[.dockerconfigjson]"},
		{"type: kubernetes.io/dockercfg, stringData: {.dockercfg: '{}'}", ""},
		{"type: kubernetes.io/dockercfg", "Required data[.dockercfg]"},
		{"type: kubernetes.io/dockercfg, stringData: {.dockercfg: '{'}", "Invalid data[.dockercfg]"},
		{"type: kubernetes.io/basic-auth, stringData: {username: a}", ""},
		{"type: kubernetes.io/basic-auth, stringData: {password: a}", ""},
		{"type: kubernetes.io/basic-auth, stringData: {user: a}", "Required data"},
		{"type: kubernetes.io/ssh-auth, stringData: {ssh-privatekey: a}", ""},
		{"type: kubernetes.io/ssh-auth, stringData: {ssh-privatekey: ''}", "Required data[ssh-privatekey]"},
		{"type: kubernetes.io/tls, stringData: {tls.crt: '', tls.key: ''}", ""},
		{"type: kubernetes.io/tls, stringData: {tls.crt: a}", "Required data[tls.key]"},
		{"type: kubernetes.io/service-account-token", "Required metadata.annotations[kubernetes.io/service-account.name]"},
		{"metadata: {name: x, annotations: {kubernetes.io/service-account.name: sa}}, type: kubernetes.io/service-account-token", ""},
	})
}

func TestErrorsHoldNoSecret(t *testing.T) {
	for _, kind := range []string{"kubernetes.io/dockerconfigjson", "kubernetes.io/dockercfg", "kubernetes.io/tls", "kubernetes.io/ssh-auth", "kubernetes.io/basic-auth"} {
		s := objectOf(t, object.Secret, "metadata: {name: x}, type: "+kind+", stringData: {.dockerconfigjson: hunter2, .dockercfg: '{\"hunter2', 'a/b': hunter2}")
		if s, ok := s.(*v1.Secret); ok {
			s.Data["big"] = bytes.Repeat([]byte("hunter2"), v1.MaxSecretSize/7+1)
		}
		errs := ValidateObject(s)
		if text := errs.ToAggregate().Error(); len(errs) < 3 || strings.Contains(text, "hunter2") {
			t.Errorf("%s: %s", kind, text)
		}
	}
}

func TestRuntimeClassRules(t *testing.T) {
	objectRules(t, object.RuntimeClass, []objectCase{
		{"handler: kata-2, overhead: {podFixed: {cpu: 100m, memory: 1Mi}}, scheduling: {nodeSelector: {a: b}, tolerations: [{operator: Exists}]}", ""},
		{"handler: ''", "Required handler"},
		{"handler: Kata", "Invalid handler"},
		{"handler: a.b", "Invalid handler"},
		{"handler: k, overhead: {podFixed: {cpu: -1, 'a b': 1}}", "Invalid overhead.podFixed[a b]\nInvalid overhead.podFixed[cpu]"},
		{"handler: k, scheduling: {nodeSelector: {a: 'b c'}, tolerations: [{key: x, operator: Near}]}", "Invalid scheduling.nodeSelector\nNotSupported scheduling.tolerations[0].operator"},
	})
}

func TestCSIDriverRules(t *testing.T) {
	spec := func(s string) string { return "spec: {" + s + "}" }
	objectRules(t, object.CSIDriver, []objectCase{
		{"", ""},
		{spec("attachRequired: false, podInfoOnMount: true, storageCapacity: true, fsGroupPolicy: None, requiresRepublish: true, seLinuxMount: true, preventPodSchedulingIfMissing: true"), ""},
		{spec("attachRequired: true"), "Invalid spec.attachRequired"},
		{spec("volumeLifecycleModes: [Ephemeral, Persistent]"), ""},
		{spec("volumeLifecycleModes: [Ephemeral, Inline, '']"), "NotSupported spec.volumeLifecycleModes[1]\nRequired spec.volumeLifecycleModes[2]"},
		{spec("fsGroupPolicy: ReadWriteOnceWithFSType"), ""},
		{spec("fsGroupPolicy: Always"), "NotSupported spec.fsGroupPolicy"},
		{spec("tokenRequests: [{}, {audience: a, expirationSeconds: 600}, {audience: b, expirationSeconds: 4294967296}], serviceAccountTokenInSecrets: true"), ""},
		{spec("tokenRequests: [{}, {audience: a}, {audience: ''}, {audience: a}]"), "Duplicate spec.tokenRequests[2].audience\nDuplicate spec.tokenRequests[3].audience"},
		{spec("tokenRequests: [{expirationSeconds: 599}, {audience: a, expirationSeconds: 4294967297}]"),
			"Invalid spec.tokenRequests[0].expirationSeconds\nInvalid spec.tokenRequests[1].expirationSeconds"},
		{spec("serviceAccountTokenInSecrets: false"), "Invalid spec.serviceAccountTokenInSecrets"},
		{spec("nodeAllocatableUpdatePeriodSeconds: 10"), ""},
		{spec("nodeAllocatableUpdatePeriodSeconds: 9"), "Invalid spec.nodeAllocatableUpdatePeriodSeconds"},
	})
}

func TestServiceRules(t *testing.T) {
	spec := func(s string) string { return "spec: {" + s + "}" }
	port := func(s string) string { return spec("ports: [{" + s + "}]") }
	objectRules(t, object.Service, []objectCase{
		{spec(""), "Required spec.ports"},
		{spec("clusterIP: None"), ""},
		{spec("type: ExternalName, externalName: example.com"), ""},
		{spec("type: ExternalName, clusterIP: 10.0.0.1"), "Required spec.externalName\nForbidden spec.clusterIPs"},
		{spec("type: Other, ports: [{port: 1}]"), "NotSupported spec.type"},
		{spec("type: NodePort, clusterIP: None, ports: [{port: 1}]"), "Invalid spec.clusterIP"},
		{port("port: 80, targetPort: http, appProtocol: kubernetes.io/h2c"), ""},
		{port("port: 0, protocol: ICMP, targetPort: 70000, appProtocol: 'a b'"),
			"Invalid spec.ports[0].port\nNotSupported spec.ports[0].protocol\nInvalid spec.ports[0].appProtocol\nInvalid spec.ports[0].targetPort"},
		{port("port: 1, name: A"), "Invalid spec.ports[0].name"},
		{port("port: 1, nodePort: 30000"), "Forbidden spec.ports[0].nodePort"},
		{spec("ports: [{port: 1}, {port: 1, name: a}, {port: 1, protocol: UDP, name: a}]"), "Required spec.ports[0].name\nDuplicate spec.ports[1]\nDuplicate spec.ports[2].name"},
		{spec("type: NodePort, ports: [{port: 1, nodePort: 70000, name: a}, {port: 2, nodePort: 3, name: b}, {port: 4, nodePort: 3, name: c}]"), "Invalid spec.ports[0].nodePort\nDuplicate spec.ports[2].nodePort"},
		{spec("ports: [{port: 1}], selector: {a: 'b c'}, sessionAffinity: Cookie"), "Invalid spec.selector\nNotSupported spec.sessionAffinity"},
		{spec("ports: [{port: 1}], sessionAffinity: ClientIP, sessionAffinityConfig: {clientIP: {timeoutSeconds: 90000}}"), "Invalid spec.sessionAffinityConfig.clientIP.timeoutSeconds"},
		{spec("ports: [{port: 1}], clusterIP: 10.0.0.1, clusterIPs: [10.0.0.1, 'fd00::1'], ipFamilies: [IPv4, IPv6], ipFamilyPolicy: RequireDualStack"), ""},
		{spec("ports: [{port: 1}], clusterIP: 10.0.0.300"), "Invalid spec.clusterIPs[0]"},
		{spec("ports: [{port: 1}], clusterIP: 10.0.0.1, clusterIPs: [10.0.0.2, 10.0.0.3, None], ipFamilies: [IP], ipFamilyPolicy: Some"),
			"Invalid spec.clusterIPs\nInvalid spec.clusterIPs\nInvalid spec.clusterIPs\nInvalid spec.clusterIPs[2]\nNotSupported spec.ipFamilies[0]\nNotSupported spec.ipFamilyPolicy"},
		{spec("ports: [{port: 1}], externalIPs: [a], loadBalancerSourceRanges: [b], allocateLoadBalancerNodePorts: true, loadBalancerClass: 'c d', healthCheckNodePort: 70000"),
			"Invalid spec.externalIPs[0]\nInvalid spec.loadBalancerSourceRanges[0]\nForbidden spec.loadBalancerSourceRanges\nForbidden spec.allocateLoadBalancerNodePorts\n" +
				"Forbidden spec.loadBalancerClass\nInvalid spec.loadBalancerClass\nInvalid spec.healthCheckNodePort\nForbidden spec.healthCheckNodePort"},
		{spec("type: LoadBalancer, ports: [{port: 1}], loadBalancerSourceRanges: [10.0.0.0/8], loadBalancerClass: example.com/x, externalTrafficPolicy: Local, healthCheckNodePort: 30001"), ""},
		{spec("ports: [{port: 1}], externalTrafficPolicy: Local, internalTrafficPolicy: Some, trafficDistribution: Near"),
			"Invalid spec.externalTrafficPolicy\nNotSupported spec.internalTrafficPolicy\nNotSupported spec.trafficDistribution"},
	})
}

func TestObjectDefaults(t *testing.T) {
	for _, test := range []struct {
		kind       object.Kind
		text, want string
	}{
		{object.ConfigMap, "metadata: {name: a}, data: {k: v}", "data: {k: v}\nmetadata: {name: a, namespace: default}"},
		{object.Secret, "metadata: {name: a, namespace: b}, data: {k: AA==, l: AA==}, stringData: {k: v}", "data: {k: dg==, l: AA==}\nmetadata: {name: a, namespace: b}\ntype: Opaque"},
		{object.Secret, "metadata: {name: a}, type: x/y, stringData: {k: v}", "data: {k: dg==}\nmetadata: {name: a, namespace: default}\ntype: x/y"},
		{object.ServiceAccount, "metadata: {name: a}", "metadata: {name: a, namespace: default}"},
		{object.PersistentVolumeClaim, "metadata: {name: a}, spec: {volumeName: x}", "metadata: {name: a, namespace: default}\nspec: {volumeName: x, volumeMode: Filesystem}"},
		{object.PersistentVolumeClaim, "metadata: {name: a}, spec: {volumeMode: Block, storageClassName: ''}", "metadata: {name: a, namespace: default}\nspec: {volumeMode: Block, storageClassName: ''}"},
		{object.PersistentVolume, "metadata: {name: a}, spec: {hostPath: {path: /a}}",
			"metadata: {name: a}\nspec: {hostPath: {path: /a, type: ''}, persistentVolumeReclaimPolicy: Retain, volumeMode: Filesystem}"},
		{object.PersistentVolume, "metadata: {name: a}, spec: {local: {path: /a}, persistentVolumeReclaimPolicy: Delete, volumeMode: Block}",
			"metadata: {name: a}\nspec: {local: {path: /a}, persistentVolumeReclaimPolicy: Delete, volumeMode: Block}"},
		{object.PersistentVolume, "metadata: {name: a}, spec: {iscsi: {iqn: x}, rbd: {image: b, pool: c}, azureDisk: {diskName: a}, scaleIO: {gateway: a}}",
			"metadata: {name: a}\nspec: {iscsi: {iqn: x, iscsiInterface: default}, rbd: {image: b, pool: c, user: admin, keyring: /etc/ceph/keyring}, " +
				"azureDisk: {diskName: a, cachingMode: ReadWrite, kind: Shared, fsType: ext4, readOnly: false}, scaleIO: {gateway: a, storageMode: ThinProvisioned, fsType: xfs}, " +
				"persistentVolumeReclaimPolicy: Retain, volumeMode: Filesystem}"},
		{object.RuntimeClass, "metadata: {name: a}, handler: b", "metadata: {name: a}\nhandler: b"},
		{object.CSIDriver, "metadata: {name: a}", "metadata: {name: a}\nspec: {attachRequired: false, podInfoOnMount: false, volumeLifecycleModes: [Persistent], " +
			"storageCapacity: false, fsGroupPolicy: ReadWriteOnceWithFSType, requiresRepublish: false, seLinuxMount: false}"},
		{object.CSIDriver, "metadata: {name: a}, spec: {attachRequired: true, podInfoOnMount: true, volumeLifecycleModes: [Ephemeral], storageCapacity: true, " +
			"fsGroupPolicy: File, requiresRepublish: true, seLinuxMount: true, tokenRequests: [{audience: a}]}",
			"metadata: {name: a}\nspec: {attachRequired: true, podInfoOnMount: true, volumeLifecycleModes: [Ephemeral], storageCapacity: true, " +
				"fsGroupPolicy: File, requiresRepublish: true, seLinuxMount: true, tokenRequests: [{audience: a}]}"},
		{object.Service, "metadata: {name: a}, spec: {clusterIP: 10.0.0.1, ports: [{port: 80}, {port: 81, protocol: UDP, targetPort: x}]}",
			"metadata: {name: a, namespace: default}\nspec: {clusterIP: 10.0.0.1, clusterIPs: [10.0.0.1], internalTrafficPolicy: Cluster, " +
				"ports: [{port: 80, protocol: TCP, targetPort: 80}, {port: 81, protocol: UDP, targetPort: x}], sessionAffinity: None, type: ClusterIP}\nstatus: {loadBalancer: {}}"},
		{object.Service, "metadata: {name: a}, spec: {type: LoadBalancer, sessionAffinity: ClientIP}",
			"metadata: {name: a, namespace: default}\nspec: {allocateLoadBalancerNodePorts: true, externalTrafficPolicy: Cluster, internalTrafficPolicy: Cluster, " +
				"sessionAffinity: ClientIP, sessionAffinityConfig: {clientIP: {timeoutSeconds: 10800}}, type: LoadBalancer}\nstatus: {loadBalancer: {}}"},
		{object.Service, "metadata: {name: a}, spec: {type: ExternalName, externalName: x}",
			"metadata: {name: a, namespace: default}\nspec: {externalName: x, sessionAffinity: None, type: ExternalName}\nstatus: {loadBalancer: {}}"},
	} {
		o := objectOf(t, test.kind, test.text)
		want := test.kind.New()
		if err := yaml.UnmarshalStrict([]byte(test.want), want); err != nil {
			t.Fatal(err)
		}
		want.GetObjectKind().SetGroupVersionKind(test.kind.GroupVersionKind())
		check := func(when string) {
			a, errA := yaml.Marshal(o)
			b, errB := yaml.Marshal(want)
			if errA != nil || errB != nil || !bytes.Equal(a, b) {
				t.Errorf("%s, %s: got\n%s\nwant\n%s", test.text, when, a, b)
			}
		}
		check("once")
		SetObjectDefaults(o)
		check("twice")
	}
}

func TestImmutableObjects(t *testing.T) {
	for _, kind := range []object.Kind{object.ConfigMap, object.Secret} {
		old := "metadata: {name: a}, immutable: true, data: {k: AA==}"
		for text, want := range map[string]string{
			old: "",
			"metadata: {name: a, labels: {b: c}}, immutable: true, data: {k: AA==}": "",
			"metadata: {name: a}, immutable: true, data: {k: AAA=}":                 "Forbidden data",
			"metadata: {name: a}, immutable: true, data: {}":                        "Forbidden data",
			"metadata: {name: a}, data: {k: AA==}":                                  "Forbidden immutable",
			"metadata: {name: a}, immutable: false, data: {k: AAA=}":                "Forbidden immutable\nForbidden data",
		} {
			errs := Frozen(objectOf(t, kind, old), objectOf(t, kind, text))
			if describe(errs) != want {
				t.Errorf("%s to %s: %v, want %s", kind, text, errs, want)
			}
		}
		loose := objectOf(t, kind, "metadata: {name: a}, immutable: false, data: {k: AA==}")
		if errs := Frozen(loose, objectOf(t, kind, "metadata: {name: a}, immutable: true, data: {k: AAA=}")); len(errs) > 0 {
			t.Errorf("%s isn't immutable before: %v", kind, errs)
		}
	}
	old := objectOf(t, object.ConfigMap, "metadata: {name: a}, immutable: true, binaryData: {k: AA==}")
	if got := describe(Frozen(old, objectOf(t, object.ConfigMap, "metadata: {name: a}, immutable: true, binaryData: {k: AAA=}"))); got != "Forbidden binaryData" {
		t.Errorf("binary data: %s", got)
	}
	secret := objectOf(t, object.Secret, "metadata: {name: a}, immutable: true")
	if got := describe(Frozen(secret, objectOf(t, object.Secret, "metadata: {name: a}, immutable: true, type: x/y"))); got != "Forbidden type" {
		t.Errorf("type: %s", got)
	}
	if errs := Frozen(&v1.Service{}, &v1.Service{ObjectMeta: metav1.ObjectMeta{Name: "x"}}); len(errs) > 0 {
		t.Errorf("a service isn't immutable: %v", errs)
	}
	for kind, text := range map[object.Kind]string{
		object.PersistentVolume:      "metadata: {name: a}, spec: {hostPath: {path: /a}}\nmetadata: {name: a}, spec: {local: {path: /b}}",
		object.CSIDriver:             "metadata: {name: a}\nmetadata: {name: a}, spec: {volumeLifecycleModes: [Ephemeral]}",
		object.PersistentVolumeClaim: "metadata: {name: a}, spec: {volumeName: a}\nmetadata: {name: a}, spec: {volumeName: b, storageClassName: c}",
	} {
		before, after, _ := strings.Cut(text, "\n")
		if errs := Frozen(objectOf(t, kind, before), objectOf(t, kind, after)); len(errs) > 0 {
			t.Errorf("a %s isn't immutable: %v", kind, errs)
		}
	}
}

// What the decoder accepts is completed and judged without a panic, and judging
// changes nothing.
func FuzzObject(f *testing.F) {
	example, err := os.ReadFile("../manifest/testdata/objects.yaml")
	if err != nil {
		f.Fatal(err)
	}
	f.Add(example)
	f.Add([]byte("apiVersion: v1\nkind: Service\nspec: {ports: [{port: -1, targetPort: ''}], clusterIPs: ['', None, x], sessionAffinity: ClientIP, sessionAffinityConfig: {}}\n"))
	f.Add([]byte("apiVersion: v1\nkind: Secret\ntype: kubernetes.io/tls\ndata: {a: null}\nstringData: {b: c}\n"))
	f.Add([]byte("apiVersion: v1\nkind: PersistentVolume\nspec: {capacity: {storage: -1, x: 1}, accessModes: [''], claimRef: {}, local: {}, csi: {nodeStageSecretRef: {}}, nodeAffinity: {required: {nodeSelectorTerms: [{}]}}}\n"))
	f.Add([]byte("apiVersion: v1\nkind: PersistentVolumeClaim\nspec: {resources: {requests: {storage: 1}}, selector: {matchExpressions: [{}]}, dataSource: {}, dataSourceRef: {}}\n"))
	f.Add([]byte("apiVersion: storage.k8s.io/v1\nkind: CSIDriver\nspec: {volumeLifecycleModes: [''], tokenRequests: [{}, {}], fsGroupPolicy: ''}\n"))
	f.Add([]byte("apiVersion: node.k8s.io/v1\nkind: RuntimeClass\noverhead: {}\nscheduling: {tolerations: [{}]}\n"))
	f.Fuzz(func(t *testing.T, data []byte) {
		for _, d := range manifest.Decode(data) {
			if d.Object == nil {
				continue
			}
			SetObjectDefaults(d.Object)
			before, err := yaml.Marshal(d.Object)
			if err != nil {
				t.Fatal(err)
			}
			Frozen(d.Object, d.Object)
			for _, e := range ValidateObject(d.Object) {
				if e.Field == "" || e.Error() == "" {
					t.Errorf("an error without a field or words: %#v", e)
				}
			}
			SetObjectDefaults(d.Object)
			after, err := yaml.Marshal(d.Object)
			if err != nil || !bytes.Equal(before, after) {
				t.Errorf("it changed (%v) from\n%s\nto\n%s", err, before, after)
			}
		}
	})
}

// A pod that was admitted is admitted as it is: whoever finds out that the class was edited
// since relies on that.
func TestApplyRuntimeClassIsIdempotent(t *testing.T) {
	class := &nodev1.RuntimeClass{
		ObjectMeta: metav1.ObjectMeta{Name: "kata"}, Overhead: &nodev1.Overhead{PodFixed: v1.ResourceList{v1.ResourceCPU: resource.MustParse("250m")}},
		Scheduling: &nodev1.Scheduling{NodeSelector: map[string]string{"a": "b"}, Tolerations: []v1.Toleration{{Key: "kata", Operator: v1.TolerationOpExists}}},
	}
	spec := &v1.PodSpec{}
	if why := ApplyRuntimeClass(spec, class); why != "" || len(spec.Overhead)+len(spec.NodeSelector)+len(spec.Tolerations) != 3 {
		t.Fatalf("%s: %+v", why, spec)
	}
	again := spec.DeepCopy()
	if why := ApplyRuntimeClass(again, class); why != "" || !reflect.DeepEqual(again, spec) {
		t.Errorf("%s: %+v", why, again)
	}
	class.Overhead.PodFixed[v1.ResourceCPU] = resource.MustParse("1")
	if spec.Overhead.Cpu().MilliValue() != 250 {
		t.Error("the pod shares its overhead with the class")
	}
	if why := ApplyRuntimeClass(again, class); !strings.Contains(why, "RuntimeClass kata") {
		t.Errorf("after the class was edited: %q", why)
	}
}
