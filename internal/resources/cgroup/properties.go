package cgroup

import (
	"fmt"
	"math"
	"strconv"
	"strings"

	systemd "github.com/coreos/go-systemd/v22/dbus"
	"github.com/godbus/dbus/v5"
)

// periodSince is the first version of systemd with CPUQuotaPeriodSec=. Earlier ones support only the default period
// of 100 ms.
const periodSince = 242

// infinite is systemd's value for no limit.
const infinite = uint64(math.MaxUint64)

// numbers maps cgroup files to the properties (systemd.resource-control(5)) that have the same value: first files of
// cgroup v1, then files of both versions, then of v2.
var numbers = map[string]string{
	"cpu.shares":    "CPUShares",
	memoryLimitFile: "MemoryLimit",

	"pids.max": "TasksMax",

	"cpu.weight":      "CPUWeight",
	"memory.max":      "MemoryMax",
	"memory.min":      "MemoryMin",
	"memory.low":      "MemoryLow",
	"memory.swap.max": "MemorySwapMax",
}

// properties converts settings to properties of systemd, so that systemd doesn't overwrite them with its own values.
// For other settings (huge pages), systemd has no properties, and it doesn't change their files.
func properties(settings []setting, version int) ([]systemd.Property, error) {
	props := make([]systemd.Property, 0, len(settings)+1)
	add := func(name string, value uint64) { props = append(props, property(name, value)) }
	period := "100000" // the period if cgroup v1 sets none; without a quota it has no effect
	for _, s := range settings {
		quota := s.Value
		switch s.File {
		case cpuPeriodFile:
			period = s.Value // the quota follows
			continue
		case "cpu.max":
			quota, period, _ = strings.Cut(s.Value, " ")
		case cpuQuotaFile:
		default:
			if name, ok := numbers[s.File]; ok {
				n, err := parseNumber(s.Value)
				if err != nil {
					return nil, fmt.Errorf("%s: %w", s.File, err)
				}
				add(name, n)
			}
			continue
		}
		perPeriod, err := parseNumber(quota)
		each, periodErr := parseNumber(period)
		if err != nil || periodErr != nil || each == 0 {
			return nil, fmt.Errorf("%s: %q in %q is no CPU quota", s.File, quota, period)
		}
		if version >= periodSince {
			add("CPUQuotaPeriodUSec", each)
		}
		add("CPUQuotaPerSecUSec", perSecond(perPeriod, each))
	}
	return props, nil
}

// perSecond converts the quota from microseconds per period to microseconds per second. It rounds up to whole percents,
// like the quota in the cgroup file (rules.WholePercents).
func perSecond(quota, period uint64) uint64 {
	if quota == infinite {
		return infinite
	}
	const percent = 10_000
	return (quota*1_000_000/period + percent - 1) / percent * percent
}

// parseNumber parses the value of a cgroup file.
func parseNumber(text string) (uint64, error) {
	if text == "max" || text == "-1" {
		return infinite, nil
	}
	return strconv.ParseUint(text, 10, 64)
}

func property(name string, value any) systemd.Property {
	return systemd.Property{Name: name, Value: dbus.MakeVariant(value)}
}
