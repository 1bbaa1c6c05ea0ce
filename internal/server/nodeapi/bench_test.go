package nodeapi_test

import (
	"bytes"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/deckhand-node/deckhand/internal/runtime/logs/layout"
	"github.com/deckhand-node/deckhand/internal/server/nodeapi"
	"github.com/deckhand-node/deckhand/internal/server/secure"
)

// BenchmarkLog has a log read through TLS, and beside it what cat prints of a file with the same text, and reports how many times as fast the log
// comes ("x-cat").
func BenchmarkLog(b *testing.B) {
	n := newNode(b)
	n.publish("web", v1.ContainerStatus{Name: "c", ContainerID: "id", State: v1.ContainerState{Terminated: ended("id", 0)}})
	dir := filepath.Join(n.logs, layout.PodDirectory("default", "web", types.UID("uid-web")), "c")
	if err := os.MkdirAll(dir, 0o755); err != nil {
		b.Fatal(err)
	}
	line, plain := fmt.Sprintf("%0*d\n", 100, 1), filepath.Join(n.logs, "plain")
	const lines = 1 << 19
	for path, line := range map[string]string{
		filepath.Join(dir, "0.log"): "2026-01-02T03:04:05.000000000Z stdout F " + line,
		plain:                       line,
	} {
		if err := os.WriteFile(path, bytes.Repeat([]byte(line), lines), 0o644); err != nil {
			b.Fatal(err)
		}
	}
	cat := func(w http.ResponseWriter, r *http.Request) {
		cmd := exec.CommandContext(r.Context(), "cat", plain)
		out, err := cmd.StdoutPipe()
		if err != nil {
			b.Error(err)
			return
		}
		if err := cmd.Start(); err != nil {
			b.Error(err)
			return
		}
		if _, err := io.Copy(w, out); err != nil {
			b.Error(err)
		}
		if err := cmd.Wait(); err != nil {
			b.Error(err)
		}
	}
	table := append(nodeapi.Routes(n.config()), secure.Route{Methods: []string{"GET"}, Path: "/cat", Subresources: []string{"proxy"}, Stream: secure.Always, Handler: http.HandlerFunc(cat)})
	address, _ := serve(b, table, open())
	b.SetBytes(int64(len(line) * lines))
	var floor time.Duration
	for b.Loop() {
		read(b, "https://"+address+"/containerLogs/default/web/c")
		b.StopTimer()
		began := time.Now()
		read(b, "https://"+address+"/cat")
		floor += time.Since(began)
		b.StartTimer()
	}
	b.ReportMetric(float64(floor)/float64(b.Elapsed()), "x-cat")
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
