package embedded_test

import (
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"strings"
	"sync"
	"testing"
	"time"

	cri "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/deckhand-node/deckhand/test/embeddedtest"
)

func command(t *testing.T, words ...string) string {
	t.Helper()
	out, err := exec.Command(words[0], words[1:]...).CombinedOutput()
	if err != nil {
		t.Errorf("%s: %v\n%s", strings.Join(words, " "), err, out)
	}
	return string(out)
}

// A firewall that is restarted, an administrator who deletes the bridge, a hardening script that switches forwarding off:
// whatever of the pods' network they remove is back at once for pods that run, and foreign rules stay. So it is when they
// did it while no agent ran.
func TestNetworkIsMadeAgain(t *testing.T) {
	if !embeddedtest.InNetwork(t) {
		return
	}
	in := embeddedtest.Prepare(t)
	var mu sync.Mutex
	var told []string
	in.Config.OnRestore = func(message string) {
		mu.Lock()
		defer mu.Unlock()
		told = append(told, message)
	}
	in.Launch(t)
	pod := in.RunPod(t, "one", []*cri.PortMapping{{Protocol: cri.Protocol_TCP, ContainerPort: 8080, HostPort: 18490}})
	bridge := in.Config.Bridge
	whole := func() error {
		for _, address := range []string{pod.IP + ":8080", "127.0.0.1:18490"} {
			client := http.Client{Transport: &http.Transport{DisableKeepAlives: true}, Timeout: time.Second}
			resp, err := client.Get("http://" + address + "/")
			if err != nil {
				return err
			}
			text, err := io.ReadAll(resp.Body)
			if err := errors.Join(err, resp.Body.Close()); err != nil || !strings.Contains(string(text), "pod:      one\n") {
				return fmt.Errorf("%s answers %q, %v", address, text, err)
			}
		}
		for path, want := range map[string]string{"/proc/sys/net/ipv4/ip_forward": "1", "/proc/sys/net/ipv4/conf/" + bridge + "/forwarding": "1"} {
			if is, err := os.ReadFile(path); err != nil || strings.TrimSpace(string(is)) != want {
				return fmt.Errorf("%s is %q, %v", path, is, err)
			}
		}
		rules := command(t, "nft", "list", "ruleset")
		for _, want := range []string{`iifname "` + bridge + `" ip daddr 127.0.0.0/8 drop`, "masquerade", "hook prerouting priority raw; policy accept"} {
			if !strings.Contains(rules, want) {
				return fmt.Errorf("no %q in the rules", want)
			}
		}
		if n := strings.Count(rules, "dport 18490"); n != 1 {
			return fmt.Errorf("%d rules of the host port", n)
		}
		return nil
	}
	await := func(what string) {
		t.Helper()
		var err error
		for deadline := time.Now().Add(30 * time.Second); time.Now().Before(deadline); time.Sleep(20 * time.Millisecond) {
			if err = whole(); err == nil {
				return
			}
		}
		t.Errorf("%s: the network isn't made again: %v\n%s", what, err, command(t, "nft", "list", "ruleset"))
	}
	await("at first")
	command(t, "nft", "add table inet other { chain c { type filter hook input priority 7; }; }")
	mac := macOf(t, bridge)
	port := strings.Fields(strings.ReplaceAll(command(t, "ip", "-o", "link", "show", "master", bridge), "@", " "))[1]
	table := "deckhand_" + command(t, "nft", "list", "tables", "inet")
	table = "deckhand_" + strings.Fields(strings.SplitN(table, "table inet deckhand_", 2)[1])[0]
	steps := [][]string{
		{"nft", "flush ruleset; add table inet other { chain c { type filter hook input priority 7; }; }"},
		{"nft", "delete table inet " + table},
		{"nft", "flush chain inet " + table + " guard"},
		{"nft", "add table inet " + table + " { flags dormant; }"},
		{"nft", "delete table ip cni_hostport"},
		{"nft", "flush chain ip cni_hostport prerouting"},
		{"nft", "flush chain ip cni_hostport hostports"},
		{"sysctl", "-qw", "net.ipv4.ip_forward=0"},
		{"sysctl", "-qw", "net.ipv4.conf." + bridge + ".forwarding=0"},
		{"ip", "link", "set", bridge, "down"},
		{"ip", "addr", "flush", "dev", bridge},
		{"ip", "route", "flush", "dev", bridge},
		{"ip", "link", "set", port, "nomaster"},
		{"ip", "link", "set", port, "down"},
		{"ip", "link", "del", bridge},
	}
	for _, step := range steps {
		mu.Lock()
		told = nil
		mu.Unlock()
		command(t, step...)
		what := strings.Join(step, " ")
		awaitTold(t, what, &mu, &told)
		await(what)
	}
	if now := macOf(t, bridge); now != mac {
		t.Errorf("the bridge had the address %s and has %s: pods send to the old one", mac, now)
	}
	if rules := command(t, "nft", "list", "ruleset"); !strings.Contains(rules, "table inet other") {
		t.Errorf("foreign rules are gone:\n%s", rules)
	}

	// While no agent runs.
	in.StopRun(t)
	command(t, "nft", "flush", "ruleset")
	command(t, "ip", "link", "del", bridge)
	in.Launch(t)
	await("with the next start")
	if p := in.Runtime.NetworkProblem(); p.Message != "" {
		t.Errorf("a problem: %+v", p)
	}

	// A pod that ends takes its host port with it, and that is no reason for anything.
	mu.Lock()
	told = nil
	mu.Unlock()
	client := cri.NewRuntimeServiceClient(in.Connect(t))
	if _, err := client.StopPodSandbox(t.Context(), &cri.StopPodSandboxRequest{PodSandboxId: pod.Sandbox}); err != nil {
		t.Fatal(err)
	}
	time.Sleep(3 * time.Second) // longer than it is waited for pods that may be ending
	mu.Lock()
	defer mu.Unlock()
	if rules := command(t, "nft", "list", "ruleset"); strings.Contains(rules, "18490") || len(told) > 0 {
		t.Errorf("after the end of the pod it was told %q, and the rules are\n%s", told, rules)
	}
}

func macOf(t *testing.T, name string) string {
	t.Helper()
	mac, err := os.ReadFile("/sys/class/net/" + name + "/address")
	if err != nil {
		// /sys is another network's.
		for _, word := range strings.Fields(command(t, "ip", "-o", "link", "show", name)) {
			if strings.Count(word, ":") == 5 {
				return word
			}
		}
	}
	return strings.TrimSpace(string(mac))
}

// awaitTold waits until something was made again, and that was said.
func awaitTold(t *testing.T, what string, mu *sync.Mutex, told *[]string) {
	t.Helper()
	for deadline := time.Now().Add(60 * time.Second); time.Now().Before(deadline); time.Sleep(20 * time.Millisecond) {
		mu.Lock()
		n := len(*told)
		mu.Unlock()
		if n > 0 {
			t.Logf("%s: %q", what, *told)
			return
		}
	}
	t.Errorf("%s: nothing is told", what)
}
