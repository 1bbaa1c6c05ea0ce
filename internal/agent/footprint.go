package agent

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/deckhand-node/deckhand/internal/atomicfile"
	"github.com/deckhand-node/deckhand/internal/config"
	"github.com/deckhand-node/deckhand/internal/config/flags"
	"github.com/deckhand-node/deckhand/internal/runtime/embedded"
	"github.com/deckhand-node/deckhand/internal/takedown"
)

// footprint is what an agent was told about the host-wide things it makes. It is
// kept in the root folder, so that a take-down needs to be told nothing but that.
type footprint struct {
	Version    int    `json:"version"`
	PodCIDR    string `json:"podCIDR"`
	Bridge     string `json:"bridge"`
	CgroupRoot string `json:"cgroupRoot"`
	PodLogs    string `json:"podLogsDir"`
	LogLinks   string `json:"containerLogLinksDir"`
	// BinDirs have the portmap plugin, which a take-down calls.
	BinDirs []string `json:"binDirs"`
}

const footprintVersion = 1

func footprintPath(root string) string { return filepath.Join(root, "footprint.json") }

func writeFootprint(cfg *config.Config) error {
	e := EmbeddedConfig(cfg)
	data, err := json.MarshalIndent(footprint{Version: footprintVersion, PodCIDR: e.PodCIDR, Bridge: e.Bridge,
		CgroupRoot: cfg.Kubelet.CgroupRoot, PodLogs: cfg.Kubelet.PodLogsDir, LogLinks: cfg.ContainerLogLinksDir, BinDirs: e.BinDirs}, "", "  ")
	if err != nil {
		return err
	}
	return atomicfile.Write(footprintPath(cfg.RootDir), append(data, '\n'), 0o600)
}

// readFootprint tells a take-down what to look for. Without a footprint the
// agent never came far enough to make anything outside its defaults.
func readFootprint(root string) (takedown.Config, error) {
	c := takedown.Config{Runtime: embedded.Config{RootDir: root, PodCIDR: config.DefaultPodCIDR, Bridge: flags.DefaultBridge}.WithDefaults(), Grace: downGrace,
		PodLogs: "/var/log/pods", ContainerLogs: flags.DefaultContainerLogLinksDir}
	data, err := os.ReadFile(footprintPath(root))
	if errors.Is(err, fs.ErrNotExist) {
		return c, nil
	}
	if err != nil {
		return c, err
	}
	var f footprint
	if err := json.Unmarshal(data, &f); err != nil {
		return c, fmt.Errorf("%s can't be understood: %w", footprintPath(root), err)
	}
	if f.Version > footprintVersion {
		return c, fmt.Errorf("%s was written by a newer deckhand (version %d, this one knows %d): use that one", footprintPath(root), f.Version, footprintVersion)
	}
	c.Runtime.PodCIDR, c.Runtime.Bridge, c.CgroupRoot = f.PodCIDR, f.Bridge, f.CgroupRoot
	c.PodLogs, c.ContainerLogs = f.PodLogs, f.LogLinks
	c.Runtime.BinDirs = f.BinDirs
	return c, nil
}

// copyArchives copies image archives into the folder the runtime imports from.
// One that is there unchanged is left alone, so that it isn't imported again.
func copyArchives(from, to string) error {
	files, err := filepath.Glob(filepath.Join(from, "*.tar"))
	if err != nil {
		return err
	}
	if err := os.MkdirAll(to, 0o700); err != nil {
		return err
	}
	for _, f := range files {
		data, err := os.ReadFile(f)
		if err != nil {
			return err
		}
		target := filepath.Join(to, filepath.Base(f))
		if old, err := os.ReadFile(target); err == nil && string(old) == string(data) {
			continue
		}
		if err := atomicfile.Write(target, data, 0o600); err != nil {
			return err
		}
	}
	return nil
}

// maxLog is how large a log of `deckhand up` may be when it is opened to be
// written on; a larger one is begun anew.
const maxLog = 10 << 20

func openLog(path string) (io.WriteCloser, error) {
	flags := os.O_CREATE | os.O_WRONLY | os.O_APPEND
	if st, err := os.Stat(path); err == nil && st.Size() > maxLog {
		flags |= os.O_TRUNC
	}
	return os.OpenFile(path, flags, 0o600)
}
