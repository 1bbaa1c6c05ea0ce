package spec

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	v1 "k8s.io/api/core/v1"
	"sigs.k8s.io/yaml"
)

// defaultsOf gives the pod's spec after SetDefaults, as YAML.
func defaultsOf(t *testing.T, spec string) string {
	t.Helper()
	p := &v1.Pod{}
	if err := yaml.UnmarshalStrict([]byte("spec: "+spec), p); err != nil {
		t.Fatalf("the test's own spec is wrong: %v\n%s", err, spec)
	}
	SetDefaults(p)
	out, err := yaml.Marshal(p.Spec)
	if err != nil {
		t.Fatal(err)
	}
	return string(out)
}

func TestPodDefaults(t *testing.T) {
	want := `containers: null
dnsPolicy: ClusterFirst
enableServiceLinks: true
restartPolicy: Always
schedulerName: default-scheduler
securityContext: {}
terminationGracePeriodSeconds: 30
`
	if diff := cmp.Diff(want, defaultsOf(t, "{}")); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	for _, name := range []string{"{serviceAccount: a}", "{serviceAccountName: a}", "{serviceAccountName: a, serviceAccount: b}"} {
		if diff := cmp.Diff(want[:len(want)-len("terminationGracePeriodSeconds: 30\n")]+"serviceAccount: a\nserviceAccountName: a\nterminationGracePeriodSeconds: 30\n", defaultsOf(t, name)); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
	}
	given := `containers: null
dnsPolicy: Default
enableServiceLinks: false
restartPolicy: Never
schedulerName: mine
securityContext:
  runAsUser: 1
terminationGracePeriodSeconds: 0
`
	if diff := cmp.Diff(given, defaultsOf(t, "{dnsPolicy: Default, enableServiceLinks: false, restartPolicy: Never, schedulerName: mine, securityContext: {runAsUser: 1}, terminationGracePeriodSeconds: 0}")); diff != "" {
		t.Errorf("what is given must stay (-want +got):\n%s", diff)
	}
}

// TestSystemPriorities: they are those of the documentation, unless the manifest gives another one.
func TestSystemPriorities(t *testing.T) {
	for spec, want := range map[string]string{
		"{priorityClassName: system-node-critical}":               "priority: 2000001000\n",
		"{priorityClassName: system-cluster-critical}":            "priority: 2000000000\n",
		"{priorityClassName: system-node-critical, priority: 17}": "priority: 17\n",
		"{priority: 5}": "priority: 5\n",
	} {
		if got := defaultsOf(t, spec); !strings.Contains(got, want) {
			t.Errorf("%s: want %sin\n%s", spec, want, got)
		}
	}
	if got := defaultsOf(t, "{priorityClassName: mine}"); strings.Contains(got, "priority:") {
		t.Errorf("a class that nobody defines: %s", got)
	}
}

const containerDefaults = `env:
- name: A
  valueFrom:
    fieldRef:
      apiVersion: v1
      fieldPath: metadata.name
- name: B
  valueFrom:
    fileKeyRef:
      key: k
      optional: false
      path: p
      volumeName: v
image: i
imagePullPolicy: Always
lifecycle:
  postStart:
    httpGet:
      path: /
      port: 1
      scheme: HTTP
  preStop:
    httpGet:
      path: /bye
      port: 1
      scheme: HTTPS
livenessProbe:
  failureThreshold: 3
  httpGet:
    path: /
    port: 1
    scheme: HTTP
  periodSeconds: 10
  successThreshold: 1
  timeoutSeconds: 1
name: c
ports:
- containerPort: 80
  protocol: TCP
- containerPort: 81
  protocol: UDP
readinessProbe:
  failureThreshold: 5
  grpc:
    port: 1
    service: ""
  periodSeconds: 5
  successThreshold: 5
  timeoutSeconds: 5
resources:
  limits:
    cpu: 2m
    memory: 2Mi
  requests:
    cpu: 1m
    memory: 2Mi
startupProbe:
  failureThreshold: 3
  periodSeconds: 10
  successThreshold: 1
  tcpSocket:
    port: 1
  timeoutSeconds: 1
terminationMessagePath: /dev/termination-log
terminationMessagePolicy: File
`

const containerGiven = `{name: c, image: i,
  env: [{name: A, valueFrom: {fieldRef: {fieldPath: metadata.name}}}, {name: B, valueFrom: {fileKeyRef: {volumeName: v, path: p, key: k}}}],
  lifecycle: {postStart: {httpGet: {port: 1}}, preStop: {httpGet: {port: 1, path: /bye, scheme: HTTPS}}},
  livenessProbe: {httpGet: {port: 1}},
  readinessProbe: {grpc: {port: 1}, failureThreshold: 5, periodSeconds: 5, successThreshold: 5, timeoutSeconds: 5},
  startupProbe: {tcpSocket: {port: 1}},
  ports: [{containerPort: 80}, {containerPort: 81, protocol: UDP}],
  resources: {limits: {cpu: 1500u, memory: 2Mi}, requests: {cpu: 100u}}}`

func TestContainerDefaults(t *testing.T) {
	p := &v1.Pod{}
	spec := "spec: {containers: [" + containerGiven + "], initContainers: [" + containerGiven + "], ephemeralContainers: [" + containerGiven + "]}"
	if err := yaml.UnmarshalStrict([]byte(spec), p); err != nil {
		t.Fatal(err)
	}
	SetDefaults(p)
	for where, c := range map[string]any{"containers": p.Spec.Containers[0], "initContainers": p.Spec.InitContainers[0], "ephemeralContainers": p.Spec.EphemeralContainers[0]} {
		got, err := yaml.Marshal(c)
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(containerDefaults, string(got)); diff != "" {
			t.Errorf("%s (-want +got):\n%s", where, diff)
		}
	}
}

// An API server stopped filling in resize policies in 1.33; what isn't listed is
// resized without a restart. Nor does a container get a restart policy: without
// one, its pod's counts.
func TestNotFilledIn(t *testing.T) {
	for _, spec := range []string{
		c("resources: {limits: {cpu: 1, memory: 1Gi}}"),
		c("resources: {limits: {cpu: 1, memory: 1Gi}}, resizePolicy: [{resourceName: cpu, restartPolicy: NotRequired}]"),
	} {
		given := podOf(t, spec).Spec.Containers[0]
		if want := strings.Count(spec, "resourceName"); len(given.ResizePolicy) != want || given.RestartPolicy != nil {
			t.Errorf("%s: resize policies %v and restart policy %v were filled in", spec, given.ResizePolicy, given.RestartPolicy)
		}
	}
}

func TestPullPolicyDefaults(t *testing.T) {
	const digest = "@sha256:e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"
	for image, want := range map[string]v1.PullPolicy{
		"nginx":                           v1.PullAlways,
		"nginx:latest":                    v1.PullAlways,
		"registry.example.com:5000/nginx": v1.PullAlways,
		"nginx:1.27":                      v1.PullIfNotPresent,
		"registry.example.com:5000/a:v1":  v1.PullIfNotPresent,
		"nginx" + digest:                  v1.PullIfNotPresent,
		"nginx:latest" + digest:           v1.PullIfNotPresent,
		"nginx:1" + digest:                v1.PullIfNotPresent,
		"":                                v1.PullIfNotPresent,
		"Not A Reference":                 v1.PullIfNotPresent,
	} {
		p := &v1.Pod{Spec: v1.PodSpec{
			Containers: []v1.Container{{Image: image}},
			Volumes:    []v1.Volume{{VolumeSource: v1.VolumeSource{Image: &v1.ImageVolumeSource{Reference: image}}}},
		}}
		SetDefaults(p)
		if got := p.Spec.Containers[0].ImagePullPolicy; got != want {
			t.Errorf("container with image %q: %s, want %s", image, got, want)
		}
		if got := p.Spec.Volumes[0].Image.PullPolicy; got != want {
			t.Errorf("volume with image %q: %s, want %s", image, got, want)
		}
	}
	p := &v1.Pod{Spec: v1.PodSpec{Containers: []v1.Container{{Image: "a", ImagePullPolicy: v1.PullNever}}}}
	if SetDefaults(p); p.Spec.Containers[0].ImagePullPolicy != v1.PullNever {
		t.Error("a given pull policy was changed")
	}
}

func TestHostNetworkDefaults(t *testing.T) {
	const ports = "ports: [{containerPort: 80}, {containerPort: 81, hostPort: 8081}]"
	p := podOf(t, "{hostNetwork: true, containers: [{name: c, image: i, "+ports+"}], initContainers: [{name: i, image: i, "+ports+"}]}")
	for _, c := range []v1.Container{p.Spec.Containers[0], p.Spec.InitContainers[0]} {
		if c.Ports[0].HostPort != 80 || c.Ports[1].HostPort != 8081 {
			t.Errorf("%s: host ports %d and %d, want 80 and 8081", c.Name, c.Ports[0].HostPort, c.Ports[1].HostPort)
		}
	}
	if p := podOf(t, c(ports)); p.Spec.Containers[0].Ports[0].HostPort != 0 {
		t.Error("a pod with its own network got a host port")
	}
}

func TestPodResourceDefaults(t *testing.T) {
	for _, tc := range []struct{ spec, cpu, memory, huge string }{
		{"{resources: {limits: {cpu: 2, memory: 1Gi, hugepages-2Mi: 4Mi}}}", "2", "1Gi", "4Mi"},
		{"{resources: {limits: {cpu: 2, memory: 1Gi}}, containers: [{name: a, image: i, resources: {requests: {cpu: 500m}}}, {name: b, image: i, resources: {limits: {cpu: 1}}}]}", "1500m", "1Gi", "0"},
		{"{resources: {limits: {cpu: 2}, requests: {cpu: 1}}, containers: [{name: a, image: i, resources: {requests: {cpu: 500m}}}]}", "1", "0", "0"},
		{"{resources: {limits: {cpu: 1}}, containers: [{name: a, image: i, resources: {limits: {hugepages-2Mi: 4Mi, cpu: 1}}}]}", "1", "0", "4Mi"},
		{"{resources: {requests: {cpu: 1}}, containers: [{name: a, image: i, resources: {requests: {memory: 1Gi}}}]}", "1", "0", "0"},
		{"{resources: {}, containers: [{name: a, image: i, resources: {limits: {hugepages-2Mi: 4Mi, cpu: 1}}}]}", "0", "0", "0"},
		{"{resources: {}}", "0", "0", "0"},
	} {
		r := podOf(t, tc.spec).Spec.Resources.Requests
		huge := r["hugepages-2Mi"]
		if r.Cpu().String() != tc.cpu || r.Memory().String() != tc.memory || huge.String() != tc.huge {
			t.Errorf("%s: requests %v", tc.spec, r)
		}
	}
}

func TestVolumeDefaults(t *testing.T) {
	for given, want := range map[string]string{
		"":                         "emptyDir: {}\n",
		"secret: {secretName: s}":  "secret:\n  defaultMode: 420\n  secretName: s\n",
		"secret: {defaultMode: 0}": "secret:\n  defaultMode: 0\n",
		"configMap: {name: s}":     "configMap:\n  defaultMode: 420\n  name: s\n",
		"downwardAPI: {items: [{path: a, fieldRef: {fieldPath: b}}]}":                                                                                   "downwardAPI:\n  defaultMode: 420\n  items:\n  - fieldRef:\n      apiVersion: v1\n      fieldPath: b\n    path: a\n",
		"projected: {sources: [{serviceAccountToken: {path: t}}, {downwardAPI: {items: [{path: a, fieldRef: {fieldPath: b}}]}}, {podCertificate: {}}]}": "projected:\n  defaultMode: 420\n  sources:\n  - serviceAccountToken:\n      expirationSeconds: 3600\n      path: t\n  - downwardAPI:\n      items:\n      - fieldRef:\n          apiVersion: v1\n          fieldPath: b\n        path: a\n  - podCertificate:\n      maxExpirationSeconds: 86400\n",
		"hostPath: {path: /a}":                            "hostPath:\n  path: /a\n  type: \"\"\n",
		"image: {reference: a}":                           "image:\n  pullPolicy: Always\n  reference: a\n",
		"iscsi: {targetPortal: p, iqn: q, lun: 0}":        "iscsi:\n  iqn: q\n  iscsiInterface: default\n  lun: 0\n  targetPortal: p\n",
		"rbd: {monitors: [m], image: i}":                  "rbd:\n  image: i\n  keyring: /etc/ceph/keyring\n  monitors:\n  - m\n  pool: rbd\n  user: admin\n",
		"azureDisk: {diskName: d, diskURI: u}":            "azureDisk:\n  cachingMode: ReadWrite\n  diskName: d\n  diskURI: u\n  fsType: ext4\n  kind: Shared\n  readOnly: false\n",
		"scaleIO: {gateway: g, system: s, secretRef: {}}": "scaleIO:\n  fsType: xfs\n  gateway: g\n  secretRef: {}\n  storageMode: ThinProvisioned\n  system: s\n",
		"ephemeral: {volumeClaimTemplate: {spec: {}}}":    "ephemeral:\n  volumeClaimTemplate:\n    metadata: {}\n    spec:\n      resources: {}\n      volumeMode: Filesystem\n",
	} {
		got, err := yaml.Marshal(podOf(t, vol(given)).Spec.Volumes[0].VolumeSource)
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(want, string(got)); diff != "" {
			t.Errorf("%s (-want +got):\n%s", given, diff)
		}
	}
}
