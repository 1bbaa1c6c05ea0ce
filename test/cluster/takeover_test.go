package cluster_test

import (
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"testing"

	v1 "k8s.io/api/core/v1"

	"github.com/deckhand-node/deckhand/test/cluster/plane"
	"github.com/deckhand-node/deckhand/test/e2e/node"
)

// kubeletProgram is the kubelet whose place deckhand takes.
const kubeletProgram = "../../bin/kubelet"

// TestTakeOver: a node of a cluster changes from the kubelet to deckhand and back while 20 pods of the API server and a static pod run on it. No
// container is restarted, and under deckhand no pod and no node seems not ready.
func TestTakeOver(t *testing.T) {
	binary := builtOnce(t)
	p := plane.Start(t, program)
	t.Run("node", func(t *testing.T) {
		r, kubelet := joinForBoth(t, p, binary)
		r.Write("static.yaml", "# To a kubelet, what begins with a brace is JSON.\n"+static("static", ""))
		kubelet()
		r.created()
		r.is(v1.ConditionTrue)
		probes := "[serve], readinessProbe: {httpGet: {port: 8080}, periodSeconds: 1}, livenessProbe: {tcpSocket: {port: 8080}, periodSeconds: 1}, startupProbe: {httpGet: {port: 8080}, periodSeconds: 1}"
		disk := t.TempDir()
		onDisk := spec("[clock, /disk/clock], volumeMounts: [{name: disk, mountPath: /disk}]", "volumes: [{name: disk, persistentVolumeClaim: {claimName: local}}, {name: conf, configMap: {name: conf}}],")
		r.apply(configMap("conf", "1") +
			"{apiVersion: storage.k8s.io/v1, kind: StorageClass, metadata: {name: local}, provisioner: kubernetes.io/no-provisioner, volumeBindingMode: WaitForFirstConsumer}\n---\n" +
			fmt.Sprintf("{apiVersion: v1, kind: PersistentVolume, metadata: {name: local}, spec: {capacity: {storage: 1Gi}, accessModes: [ReadWriteOnce], storageClassName: local, persistentVolumeReclaimPolicy: Retain, local: {path: %s}, nodeAffinity: {required: {nodeSelectorTerms: [{matchExpressions: [{key: kubernetes.io/hostname, operator: In, values: [%s]}]}]}}}}\n---\n", disk, node.Name) +
			"{apiVersion: v1, kind: PersistentVolumeClaim, metadata: {name: local}, spec: {accessModes: [ReadWriteOnce], storageClassName: local, resources: {requests: {storage: 1Gi}}}}\n---\n" +
			workload("StatefulSet", "local", "replicas: 1, serviceName: local,", onDisk) +
			workload("Deployment", "plain", "replicas: 4,", spec("[serve]")) + workload("Deployment", "probed", "replicas: 5,", spec(probes)) +
			workload("Deployment", "sidecar", "replicas: 5,", spec("[sleep, 1h]", fmt.Sprintf("initContainers: [{name: first, image: %[1]s, args: [exit, '0']}, {name: proxy, image: %[1]s, args: [serve], restartPolicy: Always, readinessProbe: {httpGet: {port: 8080}, periodSeconds: 1}}],", node.Image))) +
			workload("StatefulSet", "disk", "replicas: 4, serviceName: disk, podManagementPolicy: Parallel,", spec("[clock, /disk/clock], volumeMounts: [{name: disk, mountPath: /disk}]", "volumes: [{name: disk, emptyDir: {}}],")) +
			manifest("batch/v1", "Job", "name: done", "{template: {spec: "+spec("[exit, '0']", "restartPolicy: Never,")+"}}"))
		r.settled()
		const mirrored = "pod/static-" + node.Name
		r.kubectl("wait", "--for=create", mirrored, "--timeout=60s")
		r.kubectl("wait", "--for=condition=Ready", mirrored, "--timeout=60s")
		mirror := r.pod("static-" + node.Name).UID
		before := r.Instances()
		seen := r.record()
		check := func(who string) {
			t.Helper()
			r.settled()
			r.kubectl("wait", "--for=condition=Ready", mirrored, "--timeout=60s")
			if uid := r.pod("static-" + node.Name).UID; uid != mirror {
				t.Errorf("under %s, the static pod has another mirror pod", who)
			}
			was, _ := os.ReadFile(filepath.Join(disk, "clock")) // the pod writes it anew each second
			r.Eventually("the pod writes to its local volume", func() error {
				if now, err := os.ReadFile(filepath.Join(disk, "clock")); err != nil || string(now) == string(was) {
					return fmt.Errorf("%q, %v", now, err)
				}
				return nil
			})
			now := r.Instances()
			maps.DeleteFunc(now, func(id string, _ node.Instance) bool { _, had := before[id]; return had })
			for _, i := range now {
				t.Errorf("under %s, something new runs: %+v", who, i)
			}
			for id := range before {
				if _, still := r.Instances()[id]; !still {
					t.Errorf("under %s, %+v is gone", who, before[id])
				}
			}
		}
		r.Stop()
		_, from := r.calls(0)
		r.Start()
		r.Eventually("deckhand has told how the node is", func() error {
			if count, _ := r.calls(from); count["patch nodes/status"] == 0 {
				return fmt.Errorf("%v", count)
			}
			return nil
		})
		check("deckhand")
		r.kubectl("rollout", "restart", "deployment/plain") // it works on
		r.kubectl("rollout", "status", "deployment/plain", "--timeout=60s")
		r.settled()
		seen.mu.Lock()
		for _, f := range seen.faults {
			t.Errorf("under deckhand: %s", f)
		}
		seen.mu.Unlock()
		before = r.Instances()
		r.Stop()
		kubelet()
		r.is(v1.ConditionTrue)
		check("the kubelet again")
		r.Remove("static.yaml")
		r.kubectl("delete", "deployment,statefulset,job,pod", "--all", "--timeout=60s")
		r.kubectl("delete", "pvc,pv", "--all", "--timeout=60s")
		r.Stop()
	})
}

// joinForBoth is join for a node that the kubelet and deckhand have in turn, with a runtime. kubelet starts the kubelet.
func joinForBoth(t *testing.T, p *plane.Plane, binary string) (r *rig, kubelet func()) {
	t.Helper()
	r = join(t, p, binary, "")
	kubelet = r.forBoth(r.RuntimeEndpoint())
	r.StartRuntime()
	return r, kubelet
}

// forBoth configures a node for the kubelet and deckhand, with the runtime at an endpoint. kubelet starts the kubelet.
func (r *rig) forBoth(endpoint string) (kubelet func()) {
	r.t.Helper()
	r.Configure(config + fmt.Sprintf(`port: %d
authorization: {mode: AlwaysAllow}
authentication: {x509: {clientCAFile: %s}}
containerRuntimeEndpoint: %s
cgroupDriver: cgroupfs
enforceNodeAllocatable: []
makeIPTablesUtilChains: false
volumePluginDir: %s
imageGCHighThresholdPercent: 100
evictionHard: {memory.available: 1Mi, nodefs.available: 0%%, nodefs.inodesFree: 0%%, imagefs.available: 0%%}
`, r.Port(2), r.p.CA(), endpoint, filepath.Join(r.Base, "plugins")))
	r.MakeRoomForKubelet()
	r.t.Cleanup(func() { // the kubelet keeps the logs of removed pods for a minute
		if err := os.RemoveAll(r.PodLogs); err != nil {
			r.t.Error(err)
		}
	})
	return func() {
		r.StartOther(kubeletProgram, "--config", r.ConfigFile(), "--root-dir", r.RootDir, "--cert-dir", filepath.Join(r.Base, "pki"), "--kubeconfig", r.p.Node(node.Name),
			"--hostname-override", node.Name, "--node-ip", "0.0.0.0", "--pod-manifest-path", r.Manifests, "-v", "2")
	}
}

// settled waits until all pods are as they will stay.
func (r *rig) settled() {
	r.t.Helper()
	for _, w := range []string{"deployment/plain", "deployment/probed", "deployment/sidecar", "statefulset/disk", "statefulset/local"} {
		r.kubectl("rollout", "status", w, "--timeout=60s")
	}
	r.kubectl("wait", "--for=condition=Complete", "job/done", "--timeout=60s")
	for _, w := range [][2]any{{"app=plain", 4}, {"app=local", 1}, {"app=probed", 5}, {"app=sidecar", 5}, {"app=disk", 4}} {
		r.left(w[0].(string), w[1].(int))
	}
}
