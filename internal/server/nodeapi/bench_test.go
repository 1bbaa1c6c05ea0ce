package nodeapi_test

import (
	"bytes"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"runtime"
	"testing"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/deckhand-node/deckhand/internal/runtime/logs/layout"
	"github.com/deckhand-node/deckhand/internal/server/nodeapi"
)

// BenchmarkLog has a log of 64 MiB read through TLS, and beside it a file of the same size, as it is.
func BenchmarkLog(b *testing.B) {
	n := newNode(b)
	n.publish("web", v1.ContainerStatus{Name: "c", ContainerID: "id", State: v1.ContainerState{Terminated: ended("id", 0)}})
	dir := filepath.Join(n.logs, layout.PodDirectory("default", "web", types.UID("uid-web")), "c")
	line := "2026-01-02T03:04:05.000000000Z stdout F " + fmt.Sprintf("%0*d\n", 100, 1)
	if err := os.MkdirAll(dir, 0o755); err != nil {
		b.Fatal(err)
	}
	text := bytes.Repeat([]byte(line), 64<<20/len(line))
	for _, path := range []string{filepath.Join(dir, "0.log"), filepath.Join(n.logs, "plain")} {
		if err := os.WriteFile(path, text, 0o644); err != nil {
			b.Fatal(err)
		}
	}
	address, _ := serve(b, nodeapi.Routes(n.config()), open())
	for name, path := range map[string]string{"container": "/containerLogs/default/web/c", "plain file": "/logs/plain"} {
		b.Run(name, func(b *testing.B) {
			b.SetBytes(int64(len(text)))
			for b.Loop() {
				read(b, "https://"+address+path)
			}
		})
	}
}

func read(b *testing.B, url string) {
	b.Helper()
	request, err := http.NewRequestWithContext(b.Context(), http.MethodGet, url, nil)
	if err != nil {
		b.Fatal(err)
	}
	response, err := insecure.RoundTrip(request)
	if err != nil {
		b.Fatal(err)
	}
	defer response.Body.Close()
	if _, err := io.Copy(io.Discard, response.Body); err != nil || response.StatusCode != http.StatusOK {
		b.Fatal(response.Status, err)
	}
}

// BenchmarkPods asks for 100 pods again and again, and tells what that leaves on the heap.
func BenchmarkPods(b *testing.B) {
	n := newNode(b)
	for i := range 100 {
		n.publish(fmt.Sprint("web-", i), v1.ContainerStatus{Name: "c", ContainerID: "id", State: v1.ContainerState{Running: &v1.ContainerStateRunning{}}})
	}
	address, _ := serve(b, nodeapi.Routes(n.config()), open())
	heap := func() uint64 {
		runtime.GC()
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		return m.HeapInuse
	}
	before := heap()
	for b.Loop() {
		read(b, "https://"+address+"/pods")
	}
	b.ReportMetric((float64(heap())-float64(before))/(1<<10), "KiB-kept")
}
