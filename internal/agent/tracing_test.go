package agent_test

import (
	"crypto/tls"
	"fmt"
	"net"
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/deckhand-node/deckhand/internal/report/tracing/tracingtest"
	"github.com/deckhand-node/deckhand/internal/server/local"
)

// TestTraces: actions on pods and the calls to the runtime that they come to are one trace; requests to the HTTPS server and their calls are
// part of the caller's.
func TestTraces(t *testing.T) {
	collector := tracingtest.Collect(t)
	free, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	address := free.Addr().(*net.TCPAddr)
	free.Close()
	r := prepareRig(t, fmt.Sprintf(`tracing: {endpoint: %q, samplingRatePerMillion: 1000000}
address: 127.0.0.1
port: %d
authentication: {anonymous: {enabled: true}}
authorization: {mode: AlwaysAllow}
`, collector.Endpoint, address.Port))
	if err := r.Start(r.path("cri.sock")); err != nil {
		t.Fatal(err)
	}
	r.up()
	r.want("a", "  containers: [{name: main, image: \"IMAGE\"}]\n")
	r.await("the pod runs", r.running("a/main"))
	snapshot, err := local.NewClient(local.SocketPath(r.path("root"))).Snapshot(t.Context())
	if err != nil || len(snapshot.Exposures) != 1 || !strings.Contains(snapshot.Exposures[0], address.String()) {
		t.Errorf("exposures %q, %v; want the open HTTPS server's", snapshot.Exposures, err)
	}
	const caller = "0af7651916cd43dd8448eb211c80319c" // the ID of a trace
	client := http.Client{Transport: &http.Transport{DisableKeepAlives: true, TLSClientConfig: &tls.Config{InsecureSkipVerify: true}}}
	request, err := http.NewRequestWithContext(t.Context(), http.MethodPost, fmt.Sprintf("https://%s/run/default/a-n/main?cmd=exit+0", address), nil)
	if err != nil {
		t.Fatal(err)
	}
	request.Header.Set("traceparent", "00-"+caller+"-b7ad6b7169203331-01")
	response, err := client.Do(request)
	if err != nil {
		t.Fatal(err)
	}
	response.Body.Close()
	if response.StatusCode != http.StatusOK {
		t.Fatal(response.Status)
	}
	r.stop() // which sends what is left
	traces := collector.Traces()
	if want := []string{"kubelet runtime.v1.RuntimeService/ExecSync", "kubelet POST /run/{namespace}/{pod}/{container}"}; !slices.Equal(traces[caller], want) {
		t.Errorf("the caller's trace has %q, want %q", traces[caller], want)
	}
	for _, call := range []string{"RunPodSandbox", "CreateContainer", "StartContainer"} {
		found := false
		for _, spans := range traces {
			names := strings.Join(spans, "\n")
			found = found || strings.Contains(names, "runtime.v1.RuntimeService/"+call) && strings.Contains(names, "syncPod")
		}
		if !found {
			t.Errorf("no action is traced with %s: %v", call, traces)
		}
	}
}
