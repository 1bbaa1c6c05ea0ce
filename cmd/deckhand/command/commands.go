package command

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"

	"github.com/spf13/pflag"
	"golang.org/x/sys/unix"

	"github.com/deckhand-node/deckhand/internal/agent/reset"
	"github.com/deckhand-node/deckhand/internal/agent/runonce"
	"github.com/deckhand-node/deckhand/internal/config"
	"github.com/deckhand-node/deckhand/internal/config/flags"
	"github.com/deckhand-node/deckhand/internal/host/lockfile"
	"github.com/deckhand-node/deckhand/internal/host/room"
	"github.com/deckhand-node/deckhand/internal/kit/atomicfile"
	"github.com/deckhand-node/deckhand/internal/kit/logging"
	"github.com/deckhand-node/deckhand/internal/runtime/embedded"
)

// defaultRootDir is the default of --root-dir, unless the program was called as the kubelet: then the default is the
// kubelet's root directory (config.DefaultRootDir).
const defaultRootDir = "/var/lib/deckhand"

// Commands implements the commands that run the agent or remove everything that it created, for a program that was
// called as argv0.
func Commands(argv0 string) Deps {
	root, kubelet := defaultRootDir, filepath.Base(argv0) == "kubelet"
	if kubelet {
		root = config.DefaultRootDir
	}
	c := &commands{flags: flags.New(root)}
	return Deps{
		RootDir:    root,
		Kubelet:    kubelet,
		Self:       self("deckhand"),
		AgentFlags: c.flags,
		Agent:      c.agent,
		UpFlags:    c.addUpFlags,
		Up:         c.up,
		StopAll:    stopAll,
		Leftovers:  leftovers,
		Reset:      resetAll,
	}
}

// self returns name if a shell finds this program under that name, otherwise the program's path.
func self(name string) string {
	path, err := os.Executable()
	if err != nil {
		return name
	}
	if found, err := exec.LookPath(name); err == nil {
		a, errA := os.Stat(found)
		b, errB := os.Stat(path)
		if errA == nil && errB == nil && os.SameFile(a, b) {
			return name
		}
	}
	return path
}

// commands has the values of the commands' flags.
type commands struct {
	// flags are the flags of agent or up. Only one of these commands runs in a process.
	flags *flags.Set
	// images is the flag --images of up.
	images string
}

func (c *commands) addUpFlags(fs *pflag.FlagSet) {
	c.flags.AddTo(fs)
	fs.StringVar(&c.images, "images", "",
		"Copy the image archives (*.tar) in this `directory` to where the embedded runtime imports them from.")
}

// agent runs the agent with its log on standard error.
func (c *commands) agent(ctx context.Context, stdout io.Writer, confirm func(question string) error) error {
	host, err := takeOver(c.flags)
	if err != nil {
		return err
	}
	defer host.close()
	cfg, err := config.Load(ctx, c.flags)
	if err != nil {
		return err
	}
	// On a node of a cluster there is no question, because the node is configured remotely.
	if cfg.Standalone {
		if err := confirmReplacing(cfg, confirm); err != nil {
			return err
		}
	}
	err = host.run(ctx, cfg, stdout, os.Stderr)
	if errors.Is(err, ErrAllStopped) {
		return &exitError{exitAllStopped}
	}
	if cfg.Kubelet.RunOnce && errors.Is(err, context.Canceled) {
		return runonce.ErrBrokenOff // interrupted before the agent started
	}
	return err
}

// up runs a standalone agent that logs to a file, so that the terminal is free for the progress display.
func (c *commands) up(ctx context.Context, r UpRequest) error {
	defer outliveReaders()()
	ctx, end := untilHangUp(ctx)
	defer end()
	if r.Manifests != "" {
		if err := r.Flags.Set("pod-manifest-path", r.Manifests); err != nil {
			return err
		}
	}
	cfg, err := config.Load(ctx, c.flags)
	if err != nil {
		return err
	}
	if r.Manifests != "" {
		// The flag is set by `deckhand up`, not by the user.
		cfg.Deprecated = slices.DeleteFunc(cfg.Deprecated, func(line string) bool {
			return strings.HasPrefix(line, "--pod-manifest-path:")
		})
	}
	if cfg.LockFile != "" || cfg.Kubelet.RunOnce {
		return errors.New("--lock-file and --runonce are for agents that nobody watches: use them with `deckhand agent`")
	}
	warnings, err := preflight(ctx, cfg)
	if err != nil {
		return err
	}
	if err := confirmReplacing(cfg, r.Confirm); err != nil {
		return err
	}
	if err := embedded.ConfigOf(cfg).Claim(); err != nil {
		return err
	}
	if c.images != "" {
		if err := copyArchives(c.images, filepath.Join(cfg.RootDir, "images")); err != nil {
			return err
		}
	}
	file, err := openLog(filepath.Join(cfg.RootDir, logFile))
	if err != nil {
		return err
	}
	defer file.Close()
	log, err := openLogging(ctx, cfg, file, file)
	if err != nil {
		return err
	}
	defer log.Close()
	host := &process{flags: c.flags, started: r.Started}
	return host.serve(ctx, cfg, warnings, log)
}

// confirmReplacing asks the user before an agent with this configuration stops the pods of the previous agent. It asks
// only if the previous agent had another source of manifests.
func confirmReplacing(cfg *config.Config, confirm func(question string) error) error {
	old, pods := reset.Replaced(cfg)
	if pods == 0 {
		return nil
	}
	from := "takes them from " + cfg.Kubelet.StaticPodPath
	if cfg.Kubelet.StaticPodPath == "" {
		from = "has no directory of manifests"
	}
	return confirm(fmt.Sprintf("The last agent of %s took its pods from %s (%d left); they end if this one %s. Go on?",
		cfg.RootDir, old, pods, from))
}

// stopAll runs an agent that stops the pods of the last agent with this root directory. It logs to the log file of
// `deckhand up`. nil means that there is nothing to stop.
func stopAll(ctx context.Context, root string, started func()) error {
	if os.Geteuid() != 0 {
		return errors.New("not root: only root can stop containers")
	}
	root, err := filepath.Abs(root)
	if err != nil {
		return err
	}
	cfg, found, err := reset.LastConfig(ctx, root)
	if err != nil || !found {
		return err
	}
	if any, err := reset.Running(root); err != nil || !any {
		return err
	}
	var written io.Writer
	switch file, err := openLog(filepath.Join(cfg.RootDir, logFile)); {
	case err == nil:
		defer file.Close()
		written = file
	case errors.Is(err, unix.EROFS) && cfg.UsesEmbeddedRuntime():
		return fmt.Errorf("%w: the containerd on this disk can't stop containers: make the disk writable (dmesg says "+
			"why it isn't), or kill the pods with `deckhand reset --force`", err)
	case atomicfile.DiskFails(err):
		fmt.Fprintln(os.Stderr, "The log follows here:", room.Explain(err))
		written = os.Stderr
	default:
		return err
	}
	log, err := openLogging(ctx, cfg, written, written)
	if err != nil {
		return err
	}
	defer log.Close()
	host := &process{started: started, stopAll: true}
	if err := host.serve(ctx, cfg, nil, log); err != nil {
		return err
	}
	return ctx.Err()
}

// leftovers describes what a reset would remove.
func leftovers(root string) ([]string, error) {
	root, err := filepath.Abs(root)
	if err != nil {
		return nil, err
	}
	if _, err := os.Stat(root); errors.Is(err, os.ErrNotExist) {
		return nil, nil
	}
	recorded, err := reset.RecordedConfig(root)
	if err != nil {
		return nil, err
	}
	return reset.Describe(recorded)
}

// resetAll removes everything that an agent with this root directory created.
func resetAll(ctx context.Context, root string) error {
	if os.Geteuid() != 0 {
		return errors.New("must run as root, to remove containers, mounts and network interfaces")
	}
	root, err := filepath.Abs(root)
	if err != nil {
		return err
	}
	lock, err := lockfile.AcquireToEnd(root)
	if err != nil {
		return fmt.Errorf("stop the agent first: %w", err)
	}
	defer func() { _ = lock.Release() }() // the lock file is removed with the directory
	recorded, err := reset.RecordedConfig(root)
	if err != nil {
		return err
	}
	log, err := logging.Open(logging.Config{Format: "text", Err: os.Stderr})
	if err != nil {
		return err
	}
	defer log.Close()
	return reset.Run(ctx, recorded, log.Logger())
}

// copyArchives copies image archives to the directory that the runtime imports from. It skips unchanged archives, so
// that they aren't imported again.
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

// logFile is the log of `deckhand up`, in the root directory.
const logFile = "deckhand.log"

// maxLog is the size in bytes above which `deckhand up` truncates its log at the start instead of appending to it.
const maxLog = 10 << 20

func openLog(path string) (io.WriteCloser, error) {
	flags := os.O_CREATE | os.O_WRONLY | os.O_APPEND
	if st, err := os.Stat(path); err == nil && st.Size() > maxLog {
		flags |= os.O_TRUNC
	}
	return os.OpenFile(path, flags, 0o600)
}
