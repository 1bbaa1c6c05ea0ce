package node

import (
	"path"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// behaviourOf returns the behaviour that was set for a container by its name, its image or the first word of its
// command; without any, that of Options.Program. The caller holds n.mu.
func (n *Node) behaviourOf(config *runtimeapi.ContainerConfig) Behaviour {
	command := append(append([]string(nil), config.GetCommand()...), config.GetArgs()...)
	keys := []string{config.GetMetadata().GetName(), config.GetImage().GetUserSpecifiedImage(),
		config.GetImage().GetImage()}
	if len(command) > 0 {
		keys = append(keys, command[0], path.Base(command[0]))
	}
	for _, key := range keys {
		if b, ok := n.behaviours[key]; ok {
			return b
		}
	}
	return n.options.Program(command)
}
