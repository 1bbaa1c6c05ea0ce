package docs

import (
	"go/ast"
	"go/parser"
	"go/token"
	"path/filepath"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"testing"

	v1 "k8s.io/api/core/v1"

	"github.com/deckhand-node/deckhand/cmd/deckhand/command"
	"github.com/deckhand-node/deckhand/internal/config/fields"
	"github.com/deckhand-node/deckhand/internal/pod"
	"github.com/deckhand-node/deckhand/internal/pod/explain"
	"github.com/deckhand-node/deckhand/internal/volume"
	"github.com/deckhand-node/deckhand/internal/volume/csi"
	"github.com/deckhand-node/deckhand/internal/volume/objectfiles"
	"github.com/deckhand-node/deckhand/internal/volume/plugins"
)

// TestReadme: it is short, and has what a person looks for in the order in which they do.
func TestReadme(t *testing.T) {
	text := read(t, "README.md")
	if n := strings.Count(text, "\n"); n >= 150 {
		t.Errorf("README.md has %d lines: it is to have less than 150, the rest belongs to docs/", n)
	}
	var titles []string
	for line := range strings.Lines(fenced.ReplaceAllString(text, "")) {
		if title, ok := strings.CutPrefix(line, "## "); ok {
			titles = append(titles, strings.TrimSpace(title))
		}
	}
	want := []string{"Why", "What it looks like", "Install", "Run", "Verify", "Clean up", "From source", "Compared", "What works", "Next"}
	if !slices.Equal(titles, want) {
		t.Errorf("its sections are %q, want %q", titles, want)
	}
}

// The states of the support matrix.
const (
	works     = "works"
	inCluster = "in a cluster"
	notYet    = "not yet"
)

// evidence is what a row of the support matrix is held to.
type evidence struct {
	state string
	// fields are fields of the configuration that something acts on if it works, and that nothing does if not.
	fields string
	// why are the reasons that fields without effect have.
	why []string
	// volumes are kinds that are mounted if it works, and refused if not.
	volumes string
	// podFields are what the agent reports as not acted on.
	podFields string
	// commands are those that there aren't.
	commands string
}

// matrix is the support matrix, by the row's first cell.
var matrix = map[string]evidence{
	"Init containers, sidecars, ephemeral containers, hooks, restart rules, grace periods, deadlines":                             {state: works, fields: "crashLoopBackOff.maxContainerRestartPeriod"},
	"Startup, readiness and liveness probes: HTTP, TCP, gRPC, exec":                                                               {state: works},
	"Volumes: emptyDir, hostPath, configMap, secret, downwardAPI, projected, image":                                               {state: works, volumes: "emptyDir hostPath configMap secret downwardAPI projected image"},
	"Claims on PersistentVolumes: local, hostPath":                                                                                {state: works, volumes: "pv:local pv:hostPath"},
	"Requests, limits, QoS, huge pages, swap, in-place resize, on cgroup v1 and v2":                                               {state: works, fields: "cgroupDriver cpuCFSQuota podPidsLimit memorySwap.swapBehavior"},
	"Admission, preemption by critical pods, eviction for a pod's own disk limits":                                                {state: works, fields: "maxPods localStorageCapacityIsolation allowedUnsafeSysctls"},
	"Device plugins, extended resources, the pod resources API":                                                                   {state: works},
	"Private registries, credential providers, image archives, image collection":                                                  {state: works, fields: "imagePullCredentialsVerificationPolicy serializeImagePulls imageGCHighThresholdPercent imageMaximumGCAge"},
	"Container logs with rotation":                                                                                                {state: works, fields: "containerLogMaxSize containerLogMaxFiles podLogsDir"},
	"User namespaces, seccomp, AppArmor, sysctls, capabilities":                                                                   {state: works, fields: "userNamespaces.idsPerPod seccompDefault allowedUnsafeSysctls"},
	"Configuration files, drop-ins, flags, reload; the read-only port, metrics, health":                                           {state: works, fields: "featureGates readOnlyPort healthzPort logging.verbosity"},
	"With `--kubeconfig`: the Node object, its status and its lease, the API server's pods, events, mirror pods":                  {state: works, fields: "eventRecordQPS registerNode registerWithTaints nodeStatusReportFrequency nodeLeaseDurationSeconds kubeAPIQPS contentType"},
	"Objects that pods of the API server refer to: ConfigMaps, Secrets, claims, service account tokens, Services":                 {state: works, fields: "configMapAndSecretChangeDetectionStrategy"},
	"Without the API server, also after a reboot: its last pods and their objects; Secrets with a key":                            {state: works},
	"TLS bootstrap with a token (`kubeadm join`), certificates of the cluster for the node and its HTTPS server, renewed in time": {state: works, fields: "rotateCertificates serverTLSBootstrap"},
	"Volumes of CSI drivers, inline and by claims, with a cluster and without; in a cluster also those that a controller attaches to the node; older kinds (`azureFile` and others) through their drivers": {state: works, volumes: "csi pv:csi " +
		"awsElasticBlockStore azureDisk azureFile cinder gcePersistentDisk vsphereVolume portworxVolume " +
		"pv:awsElasticBlockStore pv:azureDisk pv:azureFile pv:cinder pv:gcePersistentDisk pv:vsphereVolume pv:portworxVolume"},
	"HTTPS server: its certificate, client certificates and tokens, authorization by the API server; `kubectl logs`, `exec`, `attach`, `cp`, `port-forward`; pods, metrics, health, profiles, `/var/log`": {state: works, fields: "enableServer port tlsCertFile tlsMinVersion authentication.x509.clientCAFile authentication.anonymous.enabled authentication.webhook.enabled authorization.mode enableDebuggingHandlers enableProfilingHandler"},
	"Statistics of pods, containers, volumes and the node: `/stats/summary`, `/metrics/cadvisor`, `/metrics/resource`":                                                                                    {state: works},
	"Queries for logs of the host's services; checkpoints of containers, if the runtime supports them: containerd needs a criu that supports the kernel":                                                  {state: works, fields: "enableSystemLogQuery"},
	"`deckhand exec`, `attach`, `cp`, `port-forward`, with a cluster and without":                                                                                                                         {state: works},
	"`deckhand debug`: an additional container in a running pod from a manifest":                                                                                                                          {state: works},
	"Eviction and admission by node pressure": {state: works, fields: "evictionHard evictionSoft evictionMaxPodGracePeriod evictionMinimumReclaim"},
	"CPUs that containers have to themselves, or that are kept from all of them (`cpuManagerPolicy: static`)": {state: works, fields: "cpuManagerPolicy cpuManagerPolicyOptions reservedSystemCPUs"},
	"Memory and topology managers, CPU hotplug, dynamic resources": {state: notYet, fields: "memoryManagerPolicy topologyManagerPolicy", podFields: "spec.resourceClaims .claims",
		why: []string{"this build doesn't assign memory to containers", "a CPU that is taken offline isn't replaced before the agent starts again"}},
	"Holding all pods together, lower QoS classes (`qosReserved`), and control groups of the host, to their share of the node": {state: works, fields: "enforceNodeAllocatable qosReserved systemReservedCgroup kubeReservedCgroup"},
	"Moving the agent, the embedded runtime and the host's processes into control groups":                                      {state: works, fields: "kubeletCgroups systemCgroups"},
	"Graceful node shutdown": {state: notYet, fields: "shutdownGracePeriod", why: []string{"this build doesn't hold up the node's shutdown"}},
	"Volumes: NFS, iSCSI, FC, flexVolume; block devices": {state: notYet, podFields: ".volumeDevices",
		volumes: "nfs iscsi fc flexVolume gitRepo",
		fields:  "volumePluginDir", why: []string{"this build has no volume plugins from outside"}},
	"SELinux labels with the embedded runtime; Windows":                                   {state: notYet, podFields: "spec.os.name spec.securityContext.seLinuxOptions spec.securityContext.windowsOptions .securityContext.seLinuxOptions .securityContext.windowsOptions"},
	"Traces by OTLP: actions on pods, calls to the runtime, requests to the HTTPS server": {state: works, fields: "tracing.endpoint tracing.samplingRatePerMillion"},
}

// Beside the matrix: what isn't acted on for other reasons than that it isn't there yet.
var (
	// otherwise are reasons of fields that ask for what is done anyway, in another way, or by no kubelet.
	otherwise = []string{
		"it has no effect in the kubelet either (deprecated)", "this build hides no metrics", "the kernel always notifies this build when memory runs short",
		"this build moves containers to other CPUs as soon as these change",
		"this build always makes a control group for each QoS class and each pod", "this build makes no iptables chains for other programs",
		"the embedded runtime's network always works like hairpin-veth, and another runtime's isn't configured by this build",
	}
	// removed are kinds of volumes that Kubernetes itself has removed; bound ones are looked up before a plugin is asked.
	removed = strings.Fields("glusterfs cephfs quobyte rbd flocker photonPersistentDisk scaleIO storageos")
	bound   = strings.Fields("persistentVolumeClaim ephemeral")
	// forSchedulers are pod fields that only a scheduler would read.
	forSchedulers = strings.Fields("%s.requests[%s]")
)

// TestMatrix holds README's support matrix to what the code says of itself.
func TestMatrix(t *testing.T) {
	_, text, _ := strings.Cut(read(t, "README.md"), "\n## What works\n")
	rows := 0
	for line := range strings.Lines(text) {
		cells := strings.Split(line, "|")
		if len(cells) != 4 || strings.HasPrefix(cells[1], " ---") || strings.TrimSpace(cells[1]) == "feature" {
			continue
		}
		rows++
		name, state := strings.TrimSpace(cells[1]), strings.TrimSpace(cells[2])
		e, ok := matrix[name]
		if !ok || e.state != state {
			t.Errorf("README says of %q that it is %q, and the test %q", name, state, e.state)
			continue
		}
		t.Run(name, func(t *testing.T) { e.hold(t) })
	}
	if rows != len(matrix) {
		t.Errorf("README has %d rows, and the test %d", rows, len(matrix))
	}
}

// hold checks that what the row names is as it says.
func (e evidence) hold(t *testing.T) {
	for path := range strings.FieldsSeq(e.fields) {
		f, ok := fields.Of(path)
		if !ok || f.Path != path || f.Acts() != (e.state == works) {
			t.Errorf("the field %s is acted on: %v", path, f.Acts())
		}
	}
	kinds := volumeKinds()
	for kind := range strings.FieldsSeq(e.volumes) {
		if mounted, known := kinds[kind]; !known || mounted != (e.state == works) {
			t.Errorf("volumes of the kind %s are mounted: %v", kind, mounted)
		}
	}
	root := command.New(command.Commands("deckhand"))
	for name := range strings.FieldsSeq(e.commands) {
		for _, c := range root.Commands() {
			if c.Name() == name && !c.Hidden {
				t.Errorf("there is a command %s", name)
			}
		}
	}
	if e.state == works && (e.why != nil || e.podFields != "") {
		t.Error("it works, but something isn't acted on")
	}
}

// TestMatrixIsWhole: whatever the agent refuses or doesn't act on has a row.
func TestMatrixIsWhole(t *testing.T) {
	var why, podFields, volumes []string
	for _, e := range matrix {
		why = append(why, e.why...)
		podFields = append(podFields, strings.Fields(e.podFields)...)
		volumes = append(volumes, strings.Fields(e.volumes)...)
	}
	for _, f := range fields.All() {
		for _, reason := range []string{f.Why, f.Partly} {
			if reason != "" && !slices.Contains(why, reason) && !slices.Contains(otherwise, reason) {
				t.Errorf("no row says that %s has no effect, or not all of it: %s", f.Path, reason)
			}
		}
	}
	for kind, mounted := range volumeKinds() {
		plain := strings.TrimPrefix(kind, "pv:")
		if !slices.Contains(volumes, kind) && (mounted || !slices.Contains(volumes, plain)) && !slices.Contains(removed, plain) && !slices.Contains(bound, kind) {
			t.Errorf("no row names volumes of the kind %s, which are mounted: %v", kind, mounted)
		}
	}
	for _, path := range unsupportedPodFields(t) {
		if !slices.Contains(podFields, path) && !slices.Contains(forSchedulers, path) {
			t.Errorf("no row names the pod field %s, which isn't acted on", path)
		}
	}
}

// volumeKinds are all kinds that the API has, of pods and (with pv: before them) of PersistentVolumes, and whether they are mounted.
func volumeKinds() map[string]bool {
	made := []volume.Plugin{
		objectfiles.NewConfigMap(), objectfiles.NewDownwardAPI(nil), plugins.NewEmptyDir(plugins.Config{}), plugins.HostPath{}, plugins.NewImageVolume(nil),
		plugins.LocalVolume{}, objectfiles.NewProjected(nil), objectfiles.NewSecret(), csi.Plugin{},
	}
	kinds := map[string]bool{}
	add := func(prefix string, s volume.Spec) {
		next, err := s.Migrate("shop")
		kinds[prefix+s.Kind()] = err == nil && slices.ContainsFunc(made, func(p volume.Plugin) bool { return p.Supports(next) })
	}
	for i := range reflect.TypeFor[v1.VolumeSource]().NumField() {
		v := &v1.Volume{}
		fill(&v.VolumeSource, i)
		add("", volume.Spec{Volume: v})
	}
	for i := range reflect.TypeFor[v1.PersistentVolumeSource]().NumField() {
		pv := &v1.PersistentVolume{Spec: v1.PersistentVolumeSpec{ClaimRef: &v1.ObjectReference{Namespace: "shop"}}}
		fill(&pv.Spec.PersistentVolumeSource, i)
		add("pv:", volume.Spec{Volume: &v1.Volume{}, Persistent: pv})
	}
	return kinds
}

func fill(source any, field int) {
	f := reflect.ValueOf(source).Elem().Field(field)
	f.Set(reflect.New(f.Type().Elem()))
}

// unsupportedPodFields are the paths that the code reports as not acted on, as they stand there: without what comes before
// a container's.
func unsupportedPodFields(t *testing.T) []string {
	t.Helper()
	f, err := parser.ParseFile(token.NewFileSet(), filepath.Join(root, "internal/runtime/translate/unsupported.go"), nil, 0)
	if err != nil {
		t.Fatal(err)
	}
	var paths []string
	ast.Inspect(f, func(n ast.Node) bool {
		call, ok := n.(*ast.CallExpr)
		if !ok {
			return true
		}
		if s, ok := call.Fun.(*ast.SelectorExpr); !ok || s.Sel.Name != "add" {
			return true
		}
		ast.Inspect(call.Args[1], func(n ast.Node) bool {
			if text, ok := n.(*ast.BasicLit); ok && text.Kind == token.STRING {
				value, err := strconv.Unquote(text.Value)
				if err != nil {
					t.Fatal(err)
				}
				paths = append(paths, value)
			}
			return true
		})
		return true
	})
	if len(paths) < 8 {
		t.Fatalf("found %q only", paths)
	}
	return paths
}

// TestTroubleshooting: each thing that a pod waits for has its section, with the words that a person sees.
func TestTroubleshooting(t *testing.T) {
	sections := map[string]string{}
	for part := range strings.SplitSeq(read(t, "docs/troubleshooting.md"), "\n### ") {
		title, text, _ := strings.Cut(part, "\n")
		sections[title], _, _ = strings.Cut(text, "\n## ")
	}
	codes := map[string]bool{}
	for _, code := range waitCodes(t) {
		codes[code] = true
		w := pod.Wait{Code: pod.WaitCode(code), Message: "MESSAGE", Reason: "REASON", Image: "IMAGE", Probe: "PROBE", Gate: "GATE", Other: "OTHER", ExitCode: 1}
		switch w.Code {
		case pod.WaitAction:
			w.Action = pod.EnsureImage
		case pod.WaitProbe:
			w.Message = ""
		case pod.WaitProbeFailed:
			w.Attempts = 24
		}
		text, ok := sections[code]
		words := "\n    " + explain.Wait(&w) + "\n"
		switch {
		case !ok:
			t.Errorf("there is no section on %s", code)
		case !strings.Contains("\n"+text, words):
			t.Errorf("the section on %s doesn't show %q", code, strings.TrimSpace(words))
		}
	}
	for title := range sections {
		if !codes[title] && !strings.HasPrefix(title, "#") {
			t.Errorf("the section %q is about no code", title)
		}
	}
}

func waitCodes(t *testing.T) []string {
	t.Helper()
	f, err := parser.ParseFile(token.NewFileSet(), filepath.Join(root, "internal/pod/wait.go"), nil, 0)
	if err != nil {
		t.Fatal(err)
	}
	var codes []string
	ast.Inspect(f, func(n ast.Node) bool {
		if s, ok := n.(*ast.ValueSpec); ok {
			if typ, ok := s.Type.(*ast.Ident); ok && typ.Name == "WaitCode" {
				code, err := strconv.Unquote(s.Values[0].(*ast.BasicLit).Value)
				if err != nil {
					t.Fatal(err)
				}
				codes = append(codes, code)
			}
		}
		return true
	})
	return codes
}
