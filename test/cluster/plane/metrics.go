package plane

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"
)

// ApproveServing approves what nodes ask for to show as servers (serverTLSBootstrap), so far as it isn't decided.
func (p *Plane) ApproveServing() error {
	pending := `{{range .items}}{{if not .status.conditions}}{{.metadata.name}} {{end}}{{end}}`
	names, err := p.Kubectl("", "get", "csr", "--field-selector=spec.signerName=kubernetes.io/kubelet-serving", "-o", "go-template="+pending)
	if list := strings.Fields(names); err == nil && len(list) > 0 {
		_, err = p.Kubectl("", append([]string{"certificate", "approve"}, list...)...)
	}
	return err
}

// StartMetricsServer has metrics-server look at the cluster's nodes every 10 seconds, as often as it can, with the rights that its manifests give it: the
// module that requires it, in that directory, has them. It talks to nodes alone whose certificate the cluster has issued. It returns when the API
// server has its API.
func (p *Plane) StartMetricsServer(module string) {
	p.t.Helper()
	const name, service = "metrics-server", "v1beta1.metrics.k8s.io"
	kubectl := func(input string, args ...string) string {
		p.t.Helper()
		out, err := p.Kubectl(input, args...)
		if err != nil {
			p.t.Fatal(err)
		}
		return strings.TrimSpace(out)
	}
	download := exec.CommandContext(p.t.Context(), "go", "mod", "download", "-json", "sigs.k8s.io/metrics-server")
	download.Dir = module
	out, err := download.Output()
	var source struct{ Dir string }
	if err == nil {
		err = json.Unmarshal(out, &source)
	}
	if err != nil {
		p.t.Fatalf("find metrics-server's manifests: %v: %s", err, out)
	}
	kubectl("", "apply", "-f", filepath.Join(source.Dir, "manifests/base/rbac.yaml"))
	token := kubectl("", "create", "token", name, "--namespace=kube-system")
	kubeconfig := p.writeKubeconfig(p.path(name+".kubeconfig"), "{token: "+token+"}")
	serving, err := p.ca.issue(name, name, nil, []string{"127.0.0.1", name + ".kube-system.svc"}, time.Time{})
	if err != nil {
		p.t.Fatal(err)
	}
	ca, err := os.ReadFile(p.CA())
	if err != nil {
		p.t.Fatal(err)
	}
	port := freePorts(p.t, 1)[0]
	p.run(name, "--kubeconfig="+kubeconfig, "--authentication-kubeconfig="+kubeconfig, "--authorization-kubeconfig="+kubeconfig,
		"--bind-address=127.0.0.1", fmt.Sprint("--secure-port=", port), "--tls-cert-file="+serving.Cert, "--tls-private-key-file="+serving.Key,
		"--kubelet-certificate-authority="+p.CA(), "--kubelet-use-node-status-port", "--kubelet-preferred-address-types=InternalIP", "--metric-resolution=10s", "--kubelet-request-timeout=5s")
	p.awaitURL(name, url("https", port)+"/livez")
	// Nobody forwards the addresses of Services here.
	kubectl(fmt.Sprintf(`{apiVersion: v1, kind: Service, metadata: {name: %[1]s, namespace: kube-system}, spec: {type: ExternalName, externalName: localhost}}
---
{apiVersion: apiregistration.k8s.io/v1, kind: APIService, metadata: {name: %[2]s}, spec: {group: metrics.k8s.io, version: v1beta1, caBundle: %[4]s, groupPriorityMinimum: 100, versionPriority: 100,
  service: {name: %[1]s, namespace: kube-system, port: %[3]d}}}
`, name, service, port, base64.StdEncoding.EncodeToString(ca)), "apply", "-f", "-")
	kubectl("", "wait", "--for=condition=Available", "apiservice/"+service, "--timeout=60s")
}

// StopMetricsServer ends it, and its API.
func (p *Plane) StopMetricsServer() {
	p.t.Helper()
	if out, err := p.Kubectl("", "delete", "apiservice", "v1beta1.metrics.k8s.io"); err != nil {
		p.t.Fatalf("%v: %s", err, out)
	}
	p.running["metrics-server"].stop()
}

// Scrape is what a target of Prometheus with these labels told at a time.
type Scrape struct {
	At     time.Time
	Labels map[string]string
	Text   string
}

// Series is one of the series that a query returns. The second of Value is the number, as text.
type Series struct {
	Metric map[string]string
	Value  [2]any
}

// Query has Prometheus' engine evaluate queries over scrapes, at the time of the last one.
func (p *Plane) Query(scrapes []Scrape, queries ...string) [][]Series {
	p.t.Helper()
	input, err := json.Marshal(map[string]any{"Scrapes": scrapes, "Queries": queries})
	if err != nil {
		p.t.Fatal(err)
	}
	cmd := exec.CommandContext(p.t.Context(), p.path("promql"))
	var errs bytes.Buffer
	cmd.Stdin, cmd.Stderr = bytes.NewReader(input), &errs
	out, err := cmd.Output()
	if err != nil {
		p.t.Fatalf("promql: %v: %s", err, errs.Bytes())
	}
	var results [][]Series
	if err := json.Unmarshal(out, &results); err != nil {
		p.t.Fatalf("promql: %v: %s", err, out)
	}
	return results
}
