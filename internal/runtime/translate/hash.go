package translate

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"

	v1 "k8s.io/api/core/v1"
)

// hashBytes is how much of the digest is kept: 64 bits are plenty among a pod's containers.
const hashBytes = 8

// Hash is a short digest of a container's spec in hex: two specs that differ in
// what an instance is made from have different hashes. Resources and resize
// policies don't count, since they may change while an instance runs (KEP-1287).
func Hash(c *v1.Container) (string, error) {
	spec := *c
	spec.Resources = v1.ResourceRequirements{}
	spec.ResizePolicy = nil
	text, err := json.Marshal(&spec)
	if err != nil {
		return "", fmt.Errorf("writing the container's spec as JSON: %w", err)
	}
	sum := sha256.Sum256(text)
	return hex.EncodeToString(sum[:hashBytes]), nil
}
