package allocated

import (
	"math"
	"math/bits"
	"strconv"
	"strings"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
)

// HugePageSize returns the name of the page size of a huge page resource, as control groups and the CRI write it: "2MB"
// for hugepages-2Mi. ok is false for any other resource.
func HugePageSize(name v1.ResourceName) (size string, ok bool) {
	text, ok := strings.CutPrefix(string(name), v1.ResourceHugePagesPrefix)
	if !ok {
		return "", false
	}
	q, err := resource.ParseQuantity(text)
	if err != nil || q.Sign() <= 0 {
		return "", false
	}
	return HugePageSizeName(q.Value()), true
}

// HugePageSizeName returns the name of a huge page size of this many bytes, as control groups and the CRI
// (HugepageLimit) write it. A "KB" is 1024 bytes, a "MB" 1024 KB.
func HugePageSizeName(bytes int64) string {
	units := [...]string{"B", "KB", "MB", "GB"}
	unit := 0
	for unit < len(units)-1 && bytes >= 1024 && bytes%1024 == 0 {
		bytes /= 1024
		unit++
	}
	return strconv.FormatInt(bytes, 10) + units[unit]
}

// SwapShare returns the amount of swap for a memory request: the container gets the same fraction of the node's swap as
// it requests of the node's memory (KEP-2400, "Steps to Calculate Swap Limit"). All amounts are in bytes. The result is
// rounded down, so that the sum of several shares is never larger than the share of the sum of their requests.
func SwapShare(request, memory, swap int64) int64 {
	if request <= 0 || memory <= 0 || swap <= 0 {
		return 0
	}
	if request >= memory {
		return swap
	}
	high, low := bits.Mul64(uint64(request), uint64(swap))
	share, _ := bits.Div64(high, low, uint64(memory)) // high < memory, because request < memory
	return int64(share)
}

// MemoryHigh returns the memory usage in bytes above which the kernel slows a container down (memory.high): the
// request plus the fraction factor (0 to 1) of the difference between limit and request, rounded down to whole pages
// (KEP-2570, "Alpha v1.27"). It returns 0, for no throttling, if the result isn't above the request.
func MemoryHigh(request, limit int64, factor float64, pageSize int64) int64 {
	if limit <= request || pageSize <= 0 {
		return 0
	}
	high := request + int64(math.Floor(factor*float64(limit-request)))
	high = min(high, limit) / pageSize * pageSize
	if high <= request {
		return 0
	}
	return high
}
