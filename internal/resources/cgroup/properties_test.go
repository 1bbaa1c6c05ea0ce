package cgroup

import (
	"fmt"
	"strings"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/deckhand-node/deckhand/internal/pod/allocated"
)

func propertiesText(t *testing.T, settings []setting, version int) string {
	t.Helper()
	props, err := properties(settings, version)
	if err != nil {
		t.Fatal(err)
	}
	var out []string
	for _, p := range props {
		value := fmt.Sprint(p.Value.Value())
		if value == "18446744073709551615" {
			value = "infinity"
		}
		if kind := p.Value.Signature().String(); kind != "t" {
			value = kind + ":" + value
		}
		out = append(out, p.Name+"="+value)
	}
	return strings.Join(out, " ")
}

func TestProperties(t *testing.T) {
	of := func(v2 bool) rules {
		return rules{V2: v2, CPUPeriod: 20 * time.Millisecond, PIDs: 50, WholePercents: true, ReserveMemory: v2, HugePages: []string{"2MB"}}
	}
	some := allocated.Limits{CPUMilli: 500, CPULimitMilli: 1234, MemoryLimit: 64 << 20, MemoryRequest: 32 << 20}
	for _, c := range []struct {
		name     string
		settings []setting
		version  int
		want     string
	}{
		{"v2", of(true).Pod(v1.PodQOSBurstable, some, nil), 252,
			"CPUWeight=59 CPUQuotaPeriodUSec=20000 CPUQuotaPerSecUSec=1240000 MemoryMax=67108864 TasksMax=50 MemorySwapMax=0 MemoryLow=33554432"},
		{"v2, guaranteed", of(true).Pod(v1.PodQOSGuaranteed, some, nil), 252,
			"CPUWeight=59 CPUQuotaPeriodUSec=20000 CPUQuotaPerSecUSec=1240000 MemoryMax=67108864 TasksMax=50 MemorySwapMax=0 MemoryMin=33554432"},
		{"v2, no bounds", rules{V2: true, CPUPeriod: time.Second, WholePercents: true}.Pod(v1.PodQOSBestEffort, allocated.Limits{}, nil), 252,
			"CPUWeight=1 CPUQuotaPeriodUSec=1000000 CPUQuotaPerSecUSec=infinity MemoryMax=infinity TasksMax=infinity MemorySwapMax=0"},
		{"v1", of(false).Pod(v1.PodQOSBurstable, some, nil), 252,
			"CPUShares=512 CPUQuotaPeriodUSec=20000 CPUQuotaPerSecUSec=1240000 MemoryLimit=67108864 TasksMax=50"},
		{"v1, no bounds", rules{CPUPeriod: time.Second, WholePercents: true}.Pod(v1.PodQOSBestEffort, allocated.Limits{}, nil), 239,
			"CPUShares=2 CPUQuotaPerSecUSec=infinity MemoryLimit=infinity TasksMax=infinity"},
		{"huge pages alone", []setting{{Controller: "hugetlb", File: "hugetlb.2MB.max", Value: "0"}}, 252, ""},
	} {
		if got := propertiesText(t, c.settings, c.version); got != c.want {
			t.Errorf("%s:\n got %s\nwant %s", c.name, got, c.want)
		}
	}
}

func TestPropertiesRefuseNonsense(t *testing.T) {
	for _, s := range []setting{
		{File: "cpu.max", Value: "max"}, {File: "cpu.max", Value: "max 0"}, {File: "cpu.max", Value: "x 100000"},
		{File: cpuQuotaFile, Value: "much"}, {File: "memory.max", Value: "1Gi"},
	} {
		if props, err := properties([]setting{s}, 252); err == nil || !strings.Contains(err.Error(), s.File) {
			t.Errorf("%s %q: %v, %v", s.File, s.Value, props, err)
		}
	}
}

func TestParseVersion(t *testing.T) {
	for text, want := range map[string]int{`"252.38-1~deb12u1"`: 252, "v239": 239, "257": 257, `"systemd"`: 0, "": 0} {
		if got := parseVersion(text); got != want {
			t.Errorf("%s: got %d, want %d", text, got, want)
		}
	}
}
