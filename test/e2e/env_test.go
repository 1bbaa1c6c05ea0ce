package e2e

import (
	"bufio"
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"testing"

	v1 "k8s.io/api/core/v1"

	"github.com/deckhand-node/deckhand/internal/server/local"
	"github.com/deckhand-node/deckhand/test/e2e/node"
)

// given is what `tools tell` tells: see images/tools/tell.go.
type given struct {
	Args, Env       []string
	Hostname, Hosts string
}

// tells is what a container that runs `tools tell` has printed last.
func tells(t *testing.T, n *node.Node, pod, container string) given {
	t.Helper()
	out, code := n.Deckhand("logs", pod, container, "--tail", "1")
	var g given
	if err := json.Unmarshal([]byte(out), &g); err != nil || code != 0 {
		t.Fatalf("the log of container %s of pod %s ended with %d and says %q: %v", container, pod, code, out, err)
	}
	return g
}

// vars are the variables that a process was given, without those that the image and
// its user's home directory make. It fails the test if one is given twice.
func (g given) vars(t *testing.T) map[string]string {
	t.Helper()
	vars := map[string]string{}
	for _, v := range g.Env {
		name, value, _ := strings.Cut(v, "=")
		if _, twice := vars[name]; twice {
			t.Errorf("variable %s is given twice", name)
		}
		vars[name] = value
	}
	for name, value := range map[string]string{"PATH": "/", "VERSION": "1", "HOME": "/"} {
		if vars[name] != value {
			t.Errorf("variable %s is %q, want %q", name, vars[name], value)
		}
		delete(vars, name)
	}
	return vars
}

// exactly fails the test unless the variables are these and no others.
func exactly(t *testing.T, who string, got, want map[string]string) {
	t.Helper()
	for _, name := range slices.Sorted(maps.Keys(want)) {
		if value, there := got[name]; value != want[name] || !there {
			t.Errorf("%s: %s is %q (there: %v), want %q", who, name, value, there, want[name])
		}
	}
	for _, name := range slices.Sorted(maps.Keys(got)) {
		if _, wanted := want[name]; !wanted {
			t.Errorf("%s: %s=%q is there, and nobody asked for it", who, name, got[name])
		}
	}
}

// What a container knows by its environment, its arguments, its host name and its hosts
// file is what its manifest says, with the objects beside it.
func TestEnvironmentAndDownwardAPI(t *testing.T) {
	t.Parallel()
	n := node.New(t, binary, node.Options{Archives: []string{tools}, DualStack: true,
		Config: "clusterDomain: cluster.local\nsystemReserved: {memory: 64Mi}\nevictionHard: {memory.available: 36Mi}"})
	n.Start()
	for name, test := range map[string]func(*testing.T, *node.Node){
		"environment": testEnvironment, "services": testServiceVariables, "names": testNames, "long names": testLongNames,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			test(t, n.For(t))
		})
	}
}

const environment = `apiVersion: v1
kind: ConfigMap
metadata: {name: app}
data: {plain: text, literal: "$(PLAIN) $$", dotted.key: dotted, both: of the map, PLAIN: of the map, last: of the map}
binaryData: {binary: AAECAw==}
---
apiVersion: v1
kind: Secret
metadata: {name: app}
data: {last: b2YgdGhlIHNlY3JldA==, password: aHVzaA==}
stringData: {password: "hush, $(PLAIN)\n"}
---
apiVersion: v1
kind: Service
metadata: {name: env-web}
spec: {clusterIP: 10.96.0.20, ports: [{name: http, port: 80}, {name: m-x, port: 9090, protocol: UDP}]}
---
apiVersion: v1
kind: ServiceAccount
metadata: {name: robot}
---
apiVersion: v1
kind: Pod
metadata: {name: env, labels: {app: e2e, lab.el/x: why}, annotations: {note: "two\nlines"}}
spec:
  serviceAccountName: robot
  restartPolicy: Never
  volumes: [{name: shared, emptyDir: {}}]
  initContainers:
  - name: writer
    image: deckhand.local/tools:1
    args: [write, /shared/settings.env, "# by the init container\nGREETING='hello, \"$(PLAIN)\"'\nLINES = 'one\ntwo'\n"]
    volumeMounts: [{name: shared, mountPath: /shared}]
  containers:
  - name: main
    image: deckhand.local/tools:1
    command: [/tools, tell, $(MADE)]
    args: [$(LATE), $$(LATE), $(NOBODY), $(CONFIG)$(PASSWORD)$(GREETING), $, $(LATE]
    resources: {requests: {cpu: 10m, memory: 8Mi, ephemeral-storage: 1Mi}, limits: {cpu: 1250m, memory: 64Mi, ephemeral-storage: 10M}}
    envFrom:
    - configMapRef: {name: app}
      prefix: MAP_
    - configMapRef: {name: app}
    - secretRef: {name: app}
    - secretRef: {name: absent, optional: true}
    env:
    - {name: EARLY, value: $(LATE)}
    - {name: PLAIN, value: simple}
    - {name: LATE, value: late}
    - {name: MADE, value: $(PLAIN)-$$(PLAIN)-$(NOBODY)-$$$(PLAIN)-$}
    - {name: AGAIN, value: first}
    - {name: AGAIN, value: $(AGAIN) and second}
    - {name: EMPTY}
    - {name: a.relaxed-name, value: x}
    - {name: WEB, value: "$(ENV_WEB_SERVICE_HOST):$(ENV_WEB_SERVICE_PORT)"}
    - {name: FROM_MAP, value: $(MAP_plain)}
    - {name: NAME, valueFrom: {fieldRef: {fieldPath: metadata.name}}}
    - {name: NAMESPACE, valueFrom: {fieldRef: {fieldPath: metadata.namespace}}}
    - {name: UID, valueFrom: {fieldRef: {fieldPath: metadata.uid}}}
    - {name: LABEL, valueFrom: {fieldRef: {fieldPath: "metadata.labels['lab.el/x']"}}}
    - {name: ANNOTATION, valueFrom: {fieldRef: {fieldPath: "metadata.annotations['note']"}}}
    - {name: NO_LABEL, valueFrom: {fieldRef: {fieldPath: "metadata.labels['none']"}}}
    - {name: NODE, valueFrom: {fieldRef: {fieldPath: spec.nodeName}}}
    - {name: ACCOUNT, valueFrom: {fieldRef: {fieldPath: spec.serviceAccountName}}}
    - {name: POD_IP, valueFrom: {fieldRef: {fieldPath: status.podIP}}}
    - {name: POD_IPS, valueFrom: {fieldRef: {fieldPath: status.podIPs}}}
    - {name: HOST_IP, valueFrom: {fieldRef: {fieldPath: status.hostIP}}}
    - {name: HOST_IPS, valueFrom: {fieldRef: {fieldPath: status.hostIPs}}}
    - {name: CPUS, valueFrom: {resourceFieldRef: {resource: limits.cpu}}}
    - {name: MILLICPUS, valueFrom: {resourceFieldRef: {resource: limits.cpu, divisor: 1m}}}
    - {name: REQUESTED, valueFrom: {resourceFieldRef: {resource: requests.cpu, divisor: 1m}}}
    - {name: MEMORY, valueFrom: {resourceFieldRef: {resource: limits.memory}}}
    - {name: MEBIBYTES, valueFrom: {resourceFieldRef: {resource: requests.memory, divisor: 1Mi}}}
    - {name: GIBIBYTES, valueFrom: {resourceFieldRef: {resource: limits.memory, divisor: 1Gi}}}
    - {name: STORAGE, valueFrom: {resourceFieldRef: {resource: limits.ephemeral-storage, divisor: 1Mi}}}
    - {name: NODE_CPUS, valueFrom: {resourceFieldRef: {containerName: other, resource: limits.cpu}}}
    - {name: NODE_MEMORY, valueFrom: {resourceFieldRef: {containerName: other, resource: limits.memory}}}
    - {name: NO_REQUEST, valueFrom: {resourceFieldRef: {containerName: other, resource: requests.memory}}}
    - {name: CONFIG, valueFrom: {configMapKeyRef: {name: app, key: literal}}}
    - {name: PASSWORD, valueFrom: {secretKeyRef: {name: app, key: password}}}
    - {name: NO_KEY, valueFrom: {configMapKeyRef: {name: app, key: none, optional: true}}}
    - {name: NO_MAP, valueFrom: {configMapKeyRef: {name: absent, key: none, optional: true}}}
    - {name: NO_SECRET, valueFrom: {secretKeyRef: {name: absent, key: none, optional: true}}}
    - {name: GREETING, valueFrom: {fileKeyRef: {volumeName: shared, path: settings.env, key: GREETING}}}
    - {name: LINES, valueFrom: {fileKeyRef: {volumeName: shared, path: settings.env, key: LINES}}}
    - {name: NO_VARIABLE, valueFrom: {fileKeyRef: {volumeName: shared, path: settings.env, key: NONE, optional: true}}}
    - {name: NO_FILE, valueFrom: {fileKeyRef: {volumeName: shared, path: none.env, key: NONE, optional: true}}}
  - {name: other, image: "deckhand.local/tools:1", args: [tell]}
`

func testEnvironment(t *testing.T, n *node.Node) {
	n.Write("env.yaml", environment)
	p := view(t, n.Await("its containers have printed their results", node.Phase("env", v1.PodSucceeded)), "env").Pod
	if len(p.Status.PodIPs) != 2 || !strings.HasPrefix(p.Status.PodIPs[1].IP, "fd00:") {
		t.Fatalf("the pod's addresses are %v, want one of each family", p.Status.PodIPs)
	}
	services := map[string]string{
		"ENV_WEB_SERVICE_HOST": "10.96.0.20", "ENV_WEB_SERVICE_PORT": "80", "ENV_WEB_SERVICE_PORT_HTTP": "80", "ENV_WEB_SERVICE_PORT_M_X": "9090",
		"ENV_WEB_PORT": "tcp://10.96.0.20:80", "ENV_WEB_PORT_80_TCP": "tcp://10.96.0.20:80", "ENV_WEB_PORT_80_TCP_PROTO": "tcp",
		"ENV_WEB_PORT_80_TCP_PORT": "80", "ENV_WEB_PORT_80_TCP_ADDR": "10.96.0.20", "ENV_WEB_PORT_9090_UDP": "udp://10.96.0.20:9090",
		"ENV_WEB_PORT_9090_UDP_PROTO": "udp", "ENV_WEB_PORT_9090_UDP_PORT": "9090", "ENV_WEB_PORT_9090_UDP_ADDR": "10.96.0.20",
	}
	want := map[string]string{
		"HOSTNAME":  "env-node1",
		"MAP_plain": "text", "MAP_literal": "$(PLAIN) $$", "MAP_dotted.key": "dotted", "MAP_both": "of the map", "MAP_PLAIN": "of the map", "MAP_last": "of the map",
		"plain": "text", "literal": "$(PLAIN) $$", "dotted.key": "dotted", "both": "of the map", "last": "of the secret", "password": "hush, $(PLAIN)\n",
		"EARLY": "$(LATE)", "PLAIN": "simple", "LATE": "late", "MADE": "simple-$(PLAIN)-$(NOBODY)-$simple-$", "AGAIN": "first and second",
		"EMPTY": "", "a.relaxed-name": "x", "WEB": "10.96.0.20:80", "FROM_MAP": "text",
		"NAME": "env-node1", "NAMESPACE": "default", "UID": string(p.UID), "LABEL": "why", "ANNOTATION": "two\nlines", "NO_LABEL": "",
		"NODE": "node1", "ACCOUNT": "robot", "POD_IP": p.Status.PodIP, "POD_IPS": p.Status.PodIPs[0].IP + "," + p.Status.PodIPs[1].IP,
		"HOST_IP": "127.0.0.1", "HOST_IPS": "127.0.0.1,::1",
		"CPUS": "2", "MILLICPUS": "1250", "REQUESTED": "10", "MEMORY": "67108864", "MEBIBYTES": "8", "GIBIBYTES": "1", "STORAGE": "10",
		"NODE_CPUS": strconv.Itoa(runtime.NumCPU()), "NODE_MEMORY": strconv.FormatInt(memoryOfTheHost(t)-100<<20, 10), "NO_REQUEST": "0",
		"CONFIG": "$(PLAIN) $$", "PASSWORD": "hush, $(PLAIN)\n", "GREETING": `hello, "$(PLAIN)"`, "LINES": "one\ntwo",
	}
	maps.Copy(want, services)
	main := tells(t, n, "env", "main")
	// What other tests' services come to, in this namespace, is for their tests to say.
	got := main.vars(t)
	maps.DeleteFunc(got, func(name, _ string) bool { return strings.HasPrefix(name, "KUBERNETES_") })
	exactly(t, "main", got, want)
	args := []string{"simple-$(PLAIN)-$(NOBODY)-$simple-$", "late", "$(LATE)", "$(NOBODY)", "$(PLAIN) $$hush, $(PLAIN)\n" + `hello, "$(PLAIN)"`, "$", "$(LATE"}
	if !slices.Equal(main.Args, args) {
		t.Errorf("its arguments are %q, want %q", main.Args, args)
	}
	want = maps.Clone(services)
	want["HOSTNAME"] = "env-node1"
	got = tells(t, n, "env", "other").vars(t)
	maps.DeleteFunc(got, func(name, _ string) bool { return strings.HasPrefix(name, "KUBERNETES_") })
	exactly(t, "other", got, want)
	remove(t, n, "env")
}

// memoryOfTheHost is how much it has, in bytes, as it says itself.
func memoryOfTheHost(t *testing.T) int64 {
	t.Helper()
	f, err := os.Open("/proc/meminfo")
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	for lines := bufio.NewScanner(f); lines.Scan(); {
		var kib int64
		if _, err := fmt.Sscanf(lines.Text(), "MemTotal: %d kB", &kib); err == nil {
			return kib << 10
		}
	}
	t.Fatal("/proc/meminfo tells no MemTotal")
	return 0
}

// The services of a pod's namespace, and always that of the API server.
func testServiceVariables(t *testing.T, n *node.Node) {
	n.Write("services.yaml", `apiVersion: v1
kind: List
items:
- apiVersion: v1
  kind: Service
  metadata: {name: kubernetes}
  spec: {clusterIP: 10.96.0.1, ports: [{name: https, port: 443}]}
- {apiVersion: v1, kind: Service, metadata: {name: a-1, namespace: lab}, spec: {clusterIP: "fd00::1", ports: [{port: 53, protocol: UDP}]}}
- {apiVersion: v1, kind: Service, metadata: {name: headless, namespace: lab}, spec: {clusterIP: None, ports: [{port: 1}]}}
- {apiVersion: v1, kind: Service, metadata: {name: outside, namespace: lab}, spec: {type: ExternalName, externalName: example.com}}
- {apiVersion: v1, kind: Service, metadata: {name: elsewhere, namespace: other}, spec: {clusterIP: 10.96.0.9, ports: [{port: 9}]}}
- apiVersion: v1
  kind: Pod
  metadata: {name: links, namespace: lab}
  spec: {restartPolicy: Never, containers: [{name: main, image: "deckhand.local/tools:1", args: [tell]}]}
- apiVersion: v1
  kind: Pod
  metadata: {name: nolinks, namespace: lab}
  spec: {restartPolicy: Never, enableServiceLinks: false, containers: [{name: main, image: "deckhand.local/tools:1", args: [tell, $(KUBERNETES_SERVICE_HOST), $(A_1_PORT)]}]}
`)
	n.Await("their containers have printed their results", node.Phase("links", v1.PodSucceeded), node.Phase("nolinks", v1.PodSucceeded))
	want := map[string]string{
		"HOSTNAME": "nolinks-node1", "KUBERNETES_SERVICE_HOST": "10.96.0.1", "KUBERNETES_SERVICE_PORT": "443", "KUBERNETES_SERVICE_PORT_HTTPS": "443",
		"KUBERNETES_PORT": "tcp://10.96.0.1:443", "KUBERNETES_PORT_443_TCP": "tcp://10.96.0.1:443", "KUBERNETES_PORT_443_TCP_PROTO": "tcp",
		"KUBERNETES_PORT_443_TCP_PORT": "443", "KUBERNETES_PORT_443_TCP_ADDR": "10.96.0.1",
	}
	alone := tells(t, n, "nolinks", "main")
	exactly(t, "without links", alone.vars(t), want)
	if args := []string{"10.96.0.1", "$(A_1_PORT)"}; !slices.Equal(alone.Args, args) {
		t.Errorf("its arguments are %q, want %q", alone.Args, args)
	}
	maps.Copy(want, map[string]string{
		"HOSTNAME": "links-node1", "A_1_SERVICE_HOST": "fd00::1", "A_1_SERVICE_PORT": "53", "A_1_PORT": "udp://[fd00::1]:53", "A_1_PORT_53_UDP": "udp://[fd00::1]:53",
		"A_1_PORT_53_UDP_PROTO": "udp", "A_1_PORT_53_UDP_PORT": "53", "A_1_PORT_53_UDP_ADDR": "fd00::1",
	})
	exactly(t, "with links", tells(t, n, "links", "main").vars(t), want)
	n.Remove("services.yaml")
	n.Await("they are gone", gone("links"), gone("nolinks"))
}

const hostsHead = "# Kubernetes-managed hosts file.\n127.0.0.1\tlocalhost\n::1\tlocalhost ip6-localhost ip6-loopback\n" +
	"fe00::0\tip6-localnet\nfe00::0\tip6-mcastprefix\nfe00::1\tip6-allnodes\nfe00::2\tip6-allrouters\n"

// A pod's names are its own, in the kernel and in its hosts file, for each of its addresses.
func testNames(t *testing.T, n *node.Node) {
	const fqdn = "ship.fleet.default.svc.cluster.local"
	node0, err := os.ReadFile("/etc/hosts")
	if err != nil {
		t.Fatal(err)
	}
	host, err := os.Hostname()
	if err != nil {
		t.Fatal(err)
	}
	const aliases = "hostAliases: [{ip: 192.0.2.1, hostnames: [one.example, one]}, {ip: '2001:db8::1', hostnames: [six.example]}]"
	const aliasLines = "\n# Entries added by HostAliases.\n192.0.2.1\tone.example\tone\n2001:db8::1\tsix.example\n"
	cases := map[string]struct {
		fields []string
		// hostname is the kernel's, names what stands behind each address.
		hostname, names string
		hosts           func(p *v1.Pod, own string) string
	}{
		"n-plain":    {nil, "n-plain-node1", "n-plain-node1", nil},
		"n-host":     {[]string{"hostname: ship"}, "ship", "ship", nil},
		"n-sub":      {[]string{"hostname: ship", "subdomain: fleet"}, "ship", fqdn + "\tship", nil},
		"n-fqdn":     {[]string{"hostname: ship", "subdomain: fleet", "setHostnameAsFQDN: true"}, fqdn, fqdn + "\tship", nil},
		"n-override": {[]string{"hostname: ship", "subdomain: fleet", "hostnameOverride: flag.ship.example"}, "flag.ship.example", "flag.ship.example", nil},
		"n-alias":    {[]string{"subdomain: fleet", aliases}, "n-alias-node1", "n-alias-node1.fleet.default.svc.cluster.local\tn-alias-node1", func(_ *v1.Pod, own string) string { return own + aliasLines }},
		"n-node": {[]string{"hostNetwork: true", aliases}, host, "", func(*v1.Pod, string) string {
			return "# Kubernetes-managed hosts file (host network).\n" + strings.TrimSuffix(string(node0), "\n") + "\n" + aliasLines
		}},
	}
	var conditions []node.Condition
	for name, c := range cases {
		n.Write(name+".yaml", toolPod(n, name, append(c.fields, "restartPolicy: Never", containers(tool("main", "tell")))...))
		conditions = append(conditions, node.Phase(name, v1.PodSucceeded))
	}
	s := n.Await("all have printed their results", conditions...)
	for name, c := range cases {
		p, got := view(t, s, name).Pod, tells(t, n, name, "main")
		want := hostsHead
		for _, ip := range p.Status.PodIPs {
			want += ip.IP + "\t" + c.names + "\n"
		}
		if c.hosts != nil {
			want = c.hosts(p, want)
		} else if len(p.Status.PodIPs) != 2 {
			t.Errorf("%s has the addresses %v, want two", name, p.Status.PodIPs)
		}
		if got.Hostname != c.hostname {
			t.Errorf("%s: its host name is %q, want %q", name, got.Hostname, c.hostname)
		}
		if v := got.vars(t)["HOSTNAME"]; v != c.hostname {
			t.Errorf("%s: HOSTNAME is %q, want %q", name, v, c.hostname)
		}
		if got.Hosts != want {
			t.Errorf("%s: its hosts file is\n%s\nwant\n%s", name, got.Hosts, want)
		}
		n.Remove(name + ".yaml")
	}
}

// Of a name that is too long, what fits; where it may not be cut, the pod waits and says why.
func testLongNames(t *testing.T, n *node.Node) {
	long := strings.Repeat("long-", 13) + "name" // 69 characters, and -node1
	n.Write("long.yaml", toolPod(n, long, "restartPolicy: Never", containers(tool("main", "tell"))))
	n.Write("n-toolong.yaml", toolPod(n, "n-toolong", "hostname: "+long[:54]+"x", "subdomain: fleet", "setHostnameAsFQDN: true", containers(tool("main", "tell"))))
	n.Await("the long one has printed its results", node.Phase(long, v1.PodSucceeded))
	if got, want := tells(t, n, long, "main").Hostname, strings.TrimRight(long[:63], "-"); got != want {
		t.Errorf("the host name of %s is %q, want %q", long, got, want)
	}
	n.AwaitEvent("n-toolong", "FailedCreatePodSandBox",
		"Failed to create pod sandbox: failed to construct FQDN from pod hostname and cluster domain, FQDN ", "Linux takes 64")
	n.Await("it waits", node.Each([]string{"n-toolong"}, func(v local.PodView) error {
		if !strings.Contains(v.Waiting(), "FQDN") {
			return fmt.Errorf("it waits: %q", v.Waiting())
		}
		return nil
	}))
	n.Remove("long.yaml")
	n.Remove("n-toolong.yaml")
	n.Await("they are gone", gone(long), gone("n-toolong"))
}
