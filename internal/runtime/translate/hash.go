package translate

import (
	"encoding/json"
	"fmt"
	"hash/fnv"
	"strconv"

	v1 "k8s.io/api/core/v1"
)

// Hash is the container hash of kubelet 1.36, which includes only name and image. A kubelet recreates running
// containers with another hash.
func Hash(c *v1.Container) (string, error) {
	text, err := json.Marshal(map[string]string{"name": c.Name, "image": c.Image})
	if err != nil {
		return "", fmt.Errorf("writing the container's name and image as JSON: %w", err)
	}
	sum := fnv.New32a()
	fmt.Fprintf(sum, "([]uint8)%v", text)
	return strconv.FormatUint(uint64(sum.Sum32()), 16), nil
}
