package agent

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/go-logr/logr"

	"github.com/deckhand-node/deckhand/internal/atomicfile"
	"github.com/deckhand-node/deckhand/internal/config"
	"github.com/deckhand-node/deckhand/internal/config/flags"
	"github.com/deckhand-node/deckhand/internal/config/validation"
	"github.com/deckhand-node/deckhand/internal/resources"
	"github.com/deckhand-node/deckhand/internal/runtime/embedded"
	"github.com/deckhand-node/deckhand/internal/sealed"
	"github.com/deckhand-node/deckhand/internal/takedown"
)

// footprint says whose the root folder is, and what that agent was told about the host-wide
// things it makes. It is kept in the root folder, so that a take-down needs to be told nothing
// but that, and an agent that is too old for what is there touches nothing.
type footprint struct {
	// Version is the format of the root folder as a whole: see footprintVersion.
	Version int `json:"version"`
	// Deckhand is the version of the agent that last ran here.
	Deckhand   string `json:"deckhand,omitempty"`
	PodCIDR    string `json:"podCIDR"`
	Bridge     string `json:"bridge"`
	CgroupRoot string `json:"cgroupRoot"`
	// Driver is the cgroup driver.
	Driver   string `json:"cgroupDriver,omitempty"`
	PodLogs  string `json:"podLogsDir"`
	LogLinks string `json:"containerLogLinksDir"`
	// BinDirs have the portmap plugin, which a take-down calls.
	BinDirs []string `json:"binDirs"`
}

// footprintVersion is raised with every format below the root folder that an older agent
// couldn't read (UPGRADING.md lists them): one refusal before anything is touched, instead of
// one by each room that meets its own file.
const footprintVersion = 1

func footprintPath(root string) string { return filepath.Join(root, "footprint.json") }

// checkFootprint refuses a root folder that a newer deckhand has used. It changes nothing.
func checkFootprint(root string) error {
	if _, _, err := loadFootprint(root); errors.Is(err, sealed.ErrNewer) {
		return err
	}
	return nil // one that is damaged is made anew
}

// loadFootprint reads the footprint; found is false if there is none.
func loadFootprint(root string) (f footprint, found bool, err error) {
	path := footprintPath(root)
	data, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return f, false, nil
	}
	if err != nil {
		return f, true, err
	}
	if err := sealed.CheckVersion(data, footprintVersion); errors.Is(err, sealed.ErrNewer) {
		var by struct{ Deckhand string }
		_ = json.Unmarshal(data, &by) // it is only told, if it can be
		return f, true, fmt.Errorf("the root folder %s can't be used by deckhand %s: %w; nothing was changed, and pods run on: install %s or newer again, or have it take everything down (`deckhand down`) before you go back",
			root, version(), err, cmp.Or(by.Deckhand, "that version"))
	}
	if err := json.Unmarshal(data, &f); err != nil {
		return f, true, fmt.Errorf("%s can't be understood: %w", path, err)
	}
	return f, true, nil
}

// writeFootprint says that this agent runs here now. The lock has to be held.
func writeFootprint(cfg *config.Config) error {
	if err := checkFootprint(cfg.RootDir); err != nil {
		return err
	}
	e := EmbeddedConfig(cfg)
	data, err := json.MarshalIndent(footprint{Version: footprintVersion, Deckhand: version(), PodCIDR: e.PodCIDR, Bridge: e.Bridge,
		CgroupRoot: cfg.Kubelet.CgroupRoot, Driver: cfg.Kubelet.CgroupDriver, PodLogs: cfg.Kubelet.PodLogsDir, LogLinks: cfg.ContainerLogLinksDir, BinDirs: e.BinDirs}, "", "  ")
	if err != nil {
		return err
	}
	path, data := footprintPath(cfg.RootDir), append(data, '\n')
	if old, err := os.ReadFile(path); err == nil && bytes.Equal(old, data) {
		return nil // an agent that comes back to a full disk needs no room for it
	}
	return atomicfile.Write(path, data, 0o600)
}

// readFootprint tells a take-down what to look for. Without a footprint the
// agent never came far enough to make anything outside its defaults.
func readFootprint(root string) (takedown.Config, error) {
	c := takedown.Config{Runtime: embedded.Config{RootDir: root, PodCIDR: config.DefaultPodCIDR, Bridge: flags.DefaultBridge}.WithDefaults(), Grace: downGrace,
		PodLogs: "/var/log/pods", ContainerLogs: flags.DefaultContainerLogLinksDir}
	f, found, err := loadFootprint(root)
	if err != nil || !found {
		return c, err
	}
	c.Runtime.PodCIDR, c.Runtime.Bridge, c.CgroupRoot = f.PodCIDR, f.Bridge, f.CgroupRoot
	c.PodLogs, c.ContainerLogs = f.PodLogs, f.LogLinks
	c.Runtime.BinDirs = f.BinDirs
	if f.Driver == validation.CgroupDriverSystemd {
		c.Slices = resources.New(resources.Config{Driver: resources.DriverSystemd, CgroupRoot: f.CgroupRoot}, logr.Discard())
	}
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
