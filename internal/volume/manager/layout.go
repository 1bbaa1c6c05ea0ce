package volume

import (
	"path/filepath"
	"strings"

	"k8s.io/apimachinery/pkg/types"
)

// The layout on disk is the kubelet's, which node tools rely on:
//
//	pods/<UID>/volumes/<plugin>/<volume>     what containers see of a volume
//	pods/<UID>/containers/<name>/<instance>  termination message files
//	pods/<UID>/etc-hosts
//
// In a plugin's name "/" is written "~".

func (m *Manager) podsDir() string { return filepath.Join(m.conf.RootDir, "pods") }

func (m *Manager) podDir(uid types.UID) string { return filepath.Join(m.podsDir(), string(uid)) }

func (m *Manager) volumeDir(uid types.UID, p Plugin, volume string) string {
	return filepath.Join(m.podDir(uid), "volumes", strings.ReplaceAll(p.Name(), "/", "~"), volume)
}
