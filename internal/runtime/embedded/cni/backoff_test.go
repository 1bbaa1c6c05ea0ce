package cni

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"github.com/go-logr/logr/funcr"
	"github.com/vishvananda/netlink"

	"github.com/deckhand-node/deckhand/internal/kit/wake"
)

// plugin stands in for portmap: it records its calls, and ADD fails until works exists.
type plugin struct{ path, calls, works string }

func fakePlugin(t *testing.T) plugin {
	dir := t.TempDir()
	p := plugin{filepath.Join(dir, "portmap"), filepath.Join(dir, "calls"), filepath.Join(dir, "works")}
	write(t, p.path, "#!/bin/sh\necho $CNI_COMMAND >>"+p.calls+"\n[ $CNI_COMMAND = DEL ] || [ -e "+p.works+" ]\n")
	if err := os.Chmod(p.path, 0o700); err != nil {
		t.Fatal(err)
	}
	return p
}

func (p plugin) adds() int {
	calls, _ := os.ReadFile(p.calls) // none yet
	return strings.Count(string(calls), "ADD")
}

// published writes what the CNI library remembers of a sandbox with a host port, and makes its interface.
func published(t *testing.T, n Network) {
	t.Helper()
	type m = map[string]any
	text, err := json.Marshal(m{"kind": "cniCacheV1", "netns": "/none", "capabilityArgs": m{"portMappings": []m{{"HostPort": 8080, "ContainerPort": 80, "Protocol": "tcp"}}},
		"result": m{"cniVersion": "1.0.0", "interfaces": []m{{"name": n.Bridge}, {"name": "vethb1"}}, "ips": []m{{"address": "10.9.0.2/24"}}}})
	if err != nil {
		t.Fatal(err)
	}
	write(t, n.result(strings.Repeat("1", 64)), string(text))
	if err := netlink.LinkAdd(&netlink.Veth{LinkAttrs: netlink.LinkAttrs{Name: "vethb1"}, PeerName: "vethb1p"}); err != nil {
		t.Fatal(err)
	}
}

// Host ports that can't be made are tried again later and later, however often netfilter changes; the network's own rules
// come back at once meanwhile.
func TestKeeperBacksOff(t *testing.T) {
	isolated(t, func(t *testing.T) {
		n, p := network(t, "10.9.0.0/24"), fakePlugin(t)
		published(t, n)
		keeper := NewKeeper(KeeperConfig{Network: n, Backend: NFTables, Portmap: func() (string, error) { return p.path, nil }, Restored: func(string) {}, Log: logr.Discard()})
		keeper.look = wake.NewDebounce(0)
		s := keeping{Keeper: keeper, restored: map[string]bool{}, suspects: map[string]time.Time{}}
		now := time.Now()
		keeper.watching()
		next := s.round(t.Context(), now)
		if p.adds() != 1 || !next.Equal(now.Add(2*lookGap)) {
			t.Fatalf("at first %d ADDs, the next after %s; problem %+v", p.adds(), next.Sub(now), keeper.Problem())
		}
		failed := keeper.Problem()
		rules(t, "nft", "delete", "table", "inet", n.table())
		for range 3 {
			keeper.rulesChanged()
			if again := s.round(t.Context(), now.Add(lookGap)); !again.Equal(next) {
				t.Errorf("woken, the next look is after %s", again.Sub(now))
			}
			if s.repairs > 1 {
				s.repaired = s.repaired.Add(-repairPause)
			}
		}
		if p.adds() != 1 || keeper.Problem() != failed || failed.Message == "" {
			t.Errorf("%d ADDs before the pause is over; problem %+v, before %+v", p.adds(), keeper.Problem(), failed)
		}
		if text, err := n.rules(t.Context(), NFTables); err != nil || !strings.Contains(text, "masquerade") {
			t.Errorf("the network's own rules wait, too: %v, %s", err, text)
		}
		now = next
		for sandbox, since := range s.suspects {
			s.suspects[sandbox] = since.Add(-settle)
		}
		s.repaired = now.Add(-calm)
		if next = s.round(t.Context(), now); p.adds() != 2 || !next.Equal(now.Add(4*lookGap)) {
			t.Errorf("then %d ADDs, the next after %s", p.adds(), next.Sub(now))
		}
		write(t, p.works, "")
		s.round(t.Context(), next)
		if p.adds() != 3 || s.failures != 0 || keeper.Problem().Message != "" {
			t.Errorf("at last %d ADDs, %d failures, problem %+v", p.adds(), s.failures, keeper.Problem())
		}
	})
}

// What a power cut left of a sandbox's CNI result keeps nothing from being made again, and is logged once. One that was just
// written is read again soon.
func TestKeeperIgnoresBrokenResults(t *testing.T) {
	isolated(t, func(t *testing.T) {
		n, p := network(t, "10.9.0.0/24"), fakePlugin(t)
		published(t, n)
		write(t, p.works, "")
		for i, text := range []string{"", `{"kind": "cniCa`, `{"result": 1}`, "{}", "\x00\x00"} {
			write(t, n.result(strings.Repeat("0", 63)+strconv.Itoa(i)), text)
		}
		logged := 0
		keeper := NewKeeper(KeeperConfig{Network: n, Backend: NFTables, Portmap: func() (string, error) { return p.path, nil }, Restored: func(string) {},
			Log: funcr.New(func(_, args string) {
				if strings.Contains(args, "unreadable") {
					logged++
				}
			}, funcr.Options{})})
		s := keeping{Keeper: keeper, restored: map[string]bool{}, suspects: map[string]time.Time{}}
		now := time.Now()
		keeper.watching()
		if next := s.round(t.Context(), now); next.IsZero() || next.After(now.Add(2*settle)) || logged != 0 {
			t.Errorf("while they may be written, the next look is after %s; %d were logged", next.Sub(now), logged)
		}
		for i := range 5 {
			if err := os.Chtimes(n.result(strings.Repeat("0", 63)+strconv.Itoa(i)), time.Time{}, now.Add(-time.Hour)); err != nil {
				t.Fatal(err)
			}
		}
		for range 3 {
			keeper.watching()
			s.round(t.Context(), now)
		}
		if p.adds() == 0 || logged != 5 || keeper.Problem().Message != "" {
			t.Errorf("%d ADDs, %d lines, problem %+v", p.adds(), logged, keeper.Problem())
		}
	})
}
