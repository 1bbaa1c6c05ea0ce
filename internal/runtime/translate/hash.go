package translate

import (
	"encoding/json"
	"fmt"
	"hash/fnv"
	"strconv"

	v1 "k8s.io/api/core/v1"
)

// Hash is what the kubelet 1.36 calls the hash of a container: of its name and image only. A kubelet that finds
// another one on a running container makes it again.
func Hash(c *v1.Container) (string, error) {
	text, err := json.Marshal(map[string]string{"name": c.Name, "image": c.Image})
	if err != nil {
		return "", fmt.Errorf("writing the container's name and image as JSON: %w", err)
	}
	sum := fnv.New32a()
	fmt.Fprintf(sum, "([]uint8)%v", text)
	return strconv.FormatUint(uint64(sum.Sum32()), 16), nil
}
