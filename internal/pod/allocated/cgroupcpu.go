package allocated

// Bounds and units of the kernel's CPU control (its documents sched-design-CFS and sched-bwc).
const (
	// MinShares is the least weight there is.
	MinShares = 2
	// MaxShares is the greatest weight there is.
	MaxShares    = 262144
	sharesPerCPU = 1024
	milliPerCPU  = 1000
	// minQuota is the least quota the kernel takes, in microseconds.
	minQuota = 1000
)

// Shares is the weight, in cgroup v1's cpu.shares, of a request of milliCPU: 1024 for one CPU.
func Shares(milliCPU int64) int64 {
	return min(max(milliCPU*sharesPerCPU/milliPerCPU, MinShares), MaxShares)
}

// Quota is how long those limited to milliCPU may run in each period, both in
// microseconds. It is 0, meaning without bounds, where there is no limit.
func Quota(milliCPU, period int64) int64 {
	if milliCPU <= 0 {
		return 0
	}
	return max(milliCPU*period/milliPerCPU, minQuota)
}
