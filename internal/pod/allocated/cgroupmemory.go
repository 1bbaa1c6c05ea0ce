package allocated

import (
	"math"
	"math/bits"
	"strconv"
	"strings"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
)

// HugePageSize is the name that control groups and the CRI have for the size of
// the huge pages of a resource: "2MB" for hugepages-2Mi. It isn't ok if the
// resource isn't of huge pages.
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

// HugePageSizeName is the name of a size of huge pages in control groups and the CRI (CRI's HugepageLimit; the kernel
// counts by 1024, although the unit looks decimal).
func HugePageSizeName(bytes int64) string {
	units := [...]string{"B", "KB", "MB", "GB"}
	unit := 0
	for unit < len(units)-1 && bytes >= 1024 && bytes%1024 == 0 {
		bytes /= 1024
		unit++
	}
	return strconv.FormatInt(bytes, 10) + units[unit]
}

// SwapShare is the part of swap that goes with a memory request: as much of it as
// the request is of the node's memory (KEP-2400, "Steps to Calculate Swap Limit").
// All are in bytes; it is rounded down, so that shares never sum up to more than
// the share of the sum.
func SwapShare(request, memory, swap int64) int64 {
	if request <= 0 || memory <= 0 || swap <= 0 {
		return 0
	}
	if request >= memory {
		return swap
	}
	high, low := bits.Mul64(uint64(request), uint64(swap))
	share, _ := bits.Div64(high, low, uint64(memory)) // high < memory, since request is
	return int64(share)
}

// MemoryHigh is the use of memory, in bytes, above which a container is slowed down (memory.high): its request and the
// fraction factor (0 to 1) of the difference between request and limit, in whole pages (KEP-2570, "Alpha v1.27"). It is
// 0, for no throttling, where that isn't above the request.
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
