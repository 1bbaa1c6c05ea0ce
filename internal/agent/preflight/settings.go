package preflight

import (
	"strings"

	"github.com/deckhand-node/deckhand/internal/host/kernel"
)

func checkKernelSettings(host kernel.Sysctls) []Problem {
	differ := host.Differences()
	if len(differ) == 0 {
		return nil
	}
	return []Problem{{Message: "protectKernelDefaults is set and the kernel isn't: " + strings.Join(differ, "; ") +
		": write them to a file in /etc/sysctl.d and run sysctl --system, or unset protectKernelDefaults", Fatal: true}}
}
