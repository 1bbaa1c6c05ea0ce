package allocated

// Bounds and units of the kernel's CPU control (its documents sched-design-CFS and sched-bwc).
const (
	// MinShares is the smallest weight that the kernel supports.
	MinShares = 2
	// MaxShares is the largest weight that the kernel supports.
	MaxShares    = 262144
	sharesPerCPU = 1024
	milliPerCPU  = 1000
	// minQuota is the smallest quota that the kernel accepts, in microseconds.
	minQuota = 1000
)

// Shares returns the weight of a CPU request of milliCPU thousandths of a CPU, in units of cgroup v1's cpu.shares:
// 1024 for one CPU.
func Shares(milliCPU int64) int64 {
	return min(max(milliCPU*sharesPerCPU/milliPerCPU, MinShares), MaxShares)
}

// Quota returns how long a control group with a limit of milliCPU thousandths of a CPU may run in each period. The
// quota and the period are in microseconds. The result is 0, which means unlimited, if milliCPU is 0.
func Quota(milliCPU, period int64) int64 {
	if milliCPU <= 0 {
		return 0
	}
	return max(milliCPU*period/milliPerCPU, minQuota)
}
