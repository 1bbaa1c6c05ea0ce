package translate_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/protobuf/testing/protocmp"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/deckhand-node/deckhand/internal/runtime/translate"
)

// A pod on the host's network has its own resolv.conf too; without a configuration
// it is the runtime that makes one.
func TestSandboxDNS(t *testing.T) {
	want := &runtimeapi.DNSConfig{Servers: []string{"10.96.0.10"}, Searches: []string{"svc.cluster.local"}, Options: []string{"ndots:5"}}
	for _, hostNetwork := range []bool{false, true} {
		p := webPod()
		p.Spec.HostNetwork = hostNetwork
		cfg, err := translate.SandboxConfig(settings(), translate.SandboxInput{Pod: p, DNS: want})
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(want, cfg.DnsConfig, protocmp.Transform()); diff != "" {
			t.Errorf("hostNetwork %v (-want +got):\n%s", hostNetwork, diff)
		}
		if cfg, err = translate.SandboxConfig(settings(), translate.SandboxInput{Pod: p}); err != nil || cfg.DnsConfig != nil {
			t.Errorf("hostNetwork %v: got %v, %v", hostNetwork, cfg.GetDnsConfig(), err)
		}
	}
}
