package apiclient

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// program makes a plugin of a shell script, and a kubeconfig that names it.
func program(t *testing.T, s *server, script, more string) string {
	t.Helper()
	path := s.kubeconfig(t, "exec: {apiVersion: client.authentication.k8s.io/v1, command: ./plugin, args: [one, two], interactiveMode: IfAvailable, "+
		"env: [{name: GREETING, value: hello}], installHint: Get it at the shop."+more+"}")
	plugin := write(t, filepath.Join(filepath.Dir(path), "plugin"), "#!/bin/sh\ncd $(dirname $0)\n"+script)
	if err := os.Chmod(plugin, 0o700); err != nil {
		t.Fatal(err)
	}
	return path
}

// credential prints an ExecCredential with this status.
func credential(status string) string {
	return fmt.Sprintf("cat <<END\n{\"apiVersion\": \"client.authentication.k8s.io/v1\", \"kind\": \"ExecCredential\", \"status\": %s}\nEND\n", status)
}

// A plugin is run once for as long as what it got is good, and again when the server refuses that.
func TestPlugin(t *testing.T) {
	accepted := "Bearer token-1"
	s := newServer(t, listen(t), nil, func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Authorization") != accepted {
			refusal(401, metav1.StatusReasonUnauthorized)(w, r)
			return
		}
		answer(200, node("1"))(w, r)
	})
	path := program(t, s, `echo x >>runs; echo "$KUBERNETES_EXEC_INFO" >info; echo "$1 $2 $GREETING" >args`+"\n"+
		credential(`{"token": "token-$(wc -l <runs)"}`), ", provideClusterInfo: true")
	dir := filepath.Dir(path)
	c := loaded(t, path, nil)
	for range 3 {
		if err := c.get(t.Context(), Calls); err != nil {
			t.Fatal(err)
		}
	}
	accepted = "Bearer token-2"
	if err := c.get(t.Context(), Calls); codeOf(err) != 401 {
		t.Errorf("with an old token: %v", err)
	}
	for range 3 {
		if err := c.get(t.Context(), Calls); err != nil {
			t.Fatal(err)
		}
	}
	if n := c.meter.of("plugin 0 no_error"); n != 2 {
		t.Errorf("%d runs are counted", n)
	}
	var info struct {
		APIVersion, Kind string
		Spec             struct {
			Cluster struct {
				Server string
				CA     string `json:"certificate-authority-data"`
			}
			Interactive bool
		}
	}
	text, err := os.ReadFile(filepath.Join(dir, "info"))
	if err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(text, &info); err != nil || info.Kind != "ExecCredential" || info.Spec.Interactive || info.Spec.Cluster.Server != s.url || info.Spec.Cluster.CA == "" {
		t.Errorf("the plugin is told %s, %v", text, err)
	}
	if args, err := os.ReadFile(filepath.Join(dir, "args")); err != nil || string(args) != "one two hello\n" {
		t.Errorf("arguments and environment: %s, %v", args, err)
	}
}

// A plugin's certificate is sent; another one takes new connections.
func TestPluginsCertificate(t *testing.T) {
	var s *server
	var names []string
	s = newServer(t, listen(t), nil, func(w http.ResponseWriter, r *http.Request) {
		if len(r.TLS.PeerCertificates) == 0 {
			refusal(401, metav1.StatusReasonUnauthorized)(w, r)
			return
		}
		names = append(names, r.TLS.PeerCertificates[0].SerialNumber.String())
		answer(200, node("1"))(w, r)
	})
	path := program(t, s, "cat credential\n", "")
	dir := filepath.Dir(path)
	give := func(until time.Duration) {
		cert, key := s.ca.issue(nil)
		text, err := json.Marshal(map[string]any{"apiVersion": "client.authentication.k8s.io/v1", "kind": "ExecCredential", "status": map[string]any{
			"clientCertificateData": string(cert), "clientKeyData": string(key), "expirationTimestamp": time.Now().Add(until).Format(time.RFC3339)}})
		if err != nil {
			t.Fatal(err)
		}
		write(t, filepath.Join(dir, "credential"), string(text))
	}
	give(-time.Hour) // it has expired, so that the plugin is asked each time
	c := loaded(t, path, nil)
	for range 2 {
		if err := c.get(t.Context(), Calls); err != nil {
			t.Fatal(err)
		}
		give(time.Hour)
	}
	if len(names) != 2 || names[0] == names[1] {
		t.Errorf("certificates %q", names)
	}
}

// A plugin that fails is named, with what it prints to standard error and where to get it; it doesn't hold up more than the call.
func TestPluginFails(t *testing.T) {
	s := newServer(t, listen(t), nil, answer(200, node("1")))
	for script, want := range map[string]string{
		"echo 'no way' >&2; exit 3": "exit status 3; the end of its standard error: no way: Get it at the shop.",
		"echo secret-token":         "it doesn't print an ExecCredential in JSON",
		"exec sleep 1000":           "it doesn't end",
		credential("{}"):            "the ExecCredential that it prints has neither a token nor a certificate",
		credential(`{"clientCertificateData": "secret-token"}`): "the certificate that it prints: tls: failed to find any PEM data in certificate input",
		"echo '{\"apiVersion\": \"v1\"}'":                       `it prints an ExecCredential of apiVersion "v1", not client.authentication.k8s.io/v1`,
		"kill -9 $$":                                            "signal: killed",
		"rm plugin; yes secret-token | head -c 5000000; exit 1": "it wrote more than 1048576 bytes to its standard output and was ended",
		"sleep 1000 & exit 4":                                   "exit status 4",
	} {
		c := loaded(t, program(t, s, script, ""), nil)
		limit := 20 * time.Second
		if strings.HasPrefix(script, "exec sleep") {
			limit = 300 * time.Millisecond
		}
		ctx, cancel := context.WithTimeout(t.Context(), limit)
		err := c.get(ctx, Calls)
		cancel()
		var e *Error
		if !errors.As(err, &e) || e.trouble != badPlugin || !strings.Contains(err.Error(), want) || !strings.Contains(err.Error(), "credential plugin /") || strings.Contains(err.Error()+c.log.String(), "secret-token") {
			t.Errorf("%s: %v, want %q", script, err, want)
		}
	}
	if n := s.calls.Load(); n != 0 {
		t.Errorf("%d requests without credentials", n)
	}
}
