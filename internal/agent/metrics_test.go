package agent_test

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"net/netip"
	"os"
	"strconv"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
	v1 "k8s.io/api/core/v1"
	kubelettypes "k8s.io/kubelet/pkg/types"
)

// serving is a rig whose agents serve their metrics, at an address that others don't use.
func serving(t *testing.T, last byte) *rig {
	t.Helper()
	r := newRig(t)
	pid := os.Getpid()
	r.cfg.ReadOnly = netip.AddrPortFrom(netip.AddrFrom4([4]byte{127, byte(pid >> 8), byte(pid), last}), 10255)
	return r
}

// scraped returns the agent's metrics.
func (r *rig) scraped(ctx context.Context) (string, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+r.cfg.ReadOnly.String()+"/metrics", nil)
	if err != nil {
		return "", err
	}
	client := http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	res, err := client.Do(req)
	if err != nil {
		return "", err
	}
	defer res.Body.Close()
	text, err := io.ReadAll(res.Body)
	if err == nil && res.StatusCode != http.StatusOK {
		err = fmt.Errorf("%s: %s", res.Status, text)
	}
	return string(text), err
}

// metric reports what is wrong with the agent's value of a metric with these labels, as fine has it.
func (r *rig) metric(name string, fine func(float64) bool) func() string {
	return func() string {
		text, err := r.scraped(r.t.Context())
		if err != nil {
			return err.Error()
		}
		_, rest, found := strings.Cut("\n"+text, "\n"+name+" ")
		if !found {
			return "there is no " + name
		}
		line, _, _ := strings.Cut(rest, "\n")
		if value, err := strconv.ParseFloat(line, 64); err != nil || !fine(value) {
			return fmt.Sprintf("%s is %s", name, line)
		}
		return ""
	}
}

func exactly(want float64) func(float64) bool { return func(got float64) bool { return got == want } }
func orMore(want float64) func(float64) bool  { return func(got float64) bool { return got >= want } }

// TestTheMetricsCountVolumes: how many there are, what was done with them, how full claims are, what was cleaned up.
func TestTheMetricsCountVolumes(t *testing.T) {
	t.Parallel()
	r := serving(t, 1)
	r.up()
	r.put("objects", claim("data")+r.volume("a"))
	r.want("web", endless(map[string]string{"data": "persistentVolumeClaim: {claimName: data}", "model": "image: {reference: IMAGE}"}))
	r.await("up", r.running("web/main"))
	var disk unix.Statfs_t
	if err := unix.Statfs(r.path("disk-a"), &disk); err != nil {
		t.Fatal(err)
	}
	for name, fine := range map[string]func(float64) bool{
		`volume_manager_total_volumes{plugin_name="kubernetes.io/local-volume",state="desired_state_of_world"}`:                                                exactly(1),
		`volume_manager_total_volumes{plugin_name="kubernetes.io/local-volume",state="actual_state_of_world"}`:                                                 exactly(1),
		`storage_operation_duration_seconds_count{migrated="false",operation_name="volume_mount",status="success",volume_plugin="kubernetes.io/local-volume"}`: exactly(1),
		`volume_operation_total_seconds_count{operation_name="volume_mount",plugin_name="kubernetes.io/local-volume"}`:                                         exactly(1),
		`kubelet_volume_stats_capacity_bytes{namespace="default",persistentvolumeclaim="data"}`:                                                                exactly(float64(disk.Blocks) * float64(disk.Frsize)),
		`kubelet_volume_stats_inodes{namespace="default",persistentvolumeclaim="data"}`:                                                                        exactly(float64(disk.Files)),
		`kubelet_volume_metric_collection_duration_seconds_count{metric_source="statfs"}`:                                                                      orMore(1),
		"kubelet_image_volume_requested_total":       exactly(1),
		"kubelet_image_volume_mounted_succeed_total": exactly(1),
		"kubelet_image_volume_mounted_errors_total":  exactly(0),
		"kubelet_orphan_pod_cleaned_volumes":         exactly(0),
	} {
		r.await(name, r.metric(name, fine))
	}
	r.want("lost", endless(map[string]string{"model": "image: {reference: example.com/none:1, pullPolicy: Never}"}))
	r.await("an image that isn't there", r.metric("kubelet_image_volume_mounted_errors_total", orMore(1)))

	r.stop()
	r.unwant("web")
	r.up()
	r.await("nobody wants it", r.nothing("web"))
	r.await("that is reported", r.metric("kubelet_orphan_pod_cleaned_volumes", exactly(1)))
	r.await("as is what was done with its volumes", r.metric(
		`storage_operation_duration_seconds_count{migrated="false",operation_name="volume_unmount",status="success",volume_plugin="kubernetes.io/local-volume"}`, exactly(1)))
	r.unwant("lost")
	r.await("down", r.nothing(""))
}

// TestWhatAContainerWritesCounts to its limit, and is reported.
func TestWhatAContainerWritesCounts(t *testing.T) {
	t.Parallel()
	r := serving(t, 2)
	r.up()
	const spec = "  containers: [{name: main, image: \"IMAGE\", resources: {limits: {ephemeral-storage: 1Mi}}}]\n"
	r.want("hog", spec)
	r.want("modest", spec)
	r.await("up", r.running("hog/main", "modest/main"))
	for name, bytes := range map[string]uint64{"hog": 2 << 20, "modest": 512 << 10} {
		if err := r.SetLayer(r.newest(name+"/main").Id, bytes, 70); err != nil {
			t.Fatal(err)
		}
	}
	r.ended("hog", v1.PodFailed, "Evicted")
	labels := fmt.Sprintf(`{namespace="default",pod="modest-n",uid=%q}`, r.newest("modest/main").Labels[kubelettypes.KubernetesPodUIDLabel])
	r.await("what the other keeps", r.metric("deckhand_pod_disk_used_bytes"+labels, func(b float64) bool { return b >= 512<<10 && b < 1<<20 }))
	r.await("how many files", r.metric("deckhand_pod_disk_used_inodes"+labels, func(n float64) bool { return n > 70 && n < 80 })) // and its log
	r.await("how long it took", r.metric(`kubelet_volume_metric_collection_duration_seconds_count{metric_source="du"}`, orMore(1)))
	r.undisturbed("modest/main")
	r.unwant("hog")
	r.unwant("modest")
	r.await("down", r.nothing(""))
	r.await("nothing is reported pods that are gone", func() string {
		text, err := r.scraped(t.Context())
		if err != nil || strings.Contains(text, "deckhand_pod_disk_used") {
			return fmt.Sprintf("it is, %v", err)
		}
		return ""
	})
}
