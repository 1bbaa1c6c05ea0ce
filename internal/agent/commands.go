package agent

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/spf13/pflag"

	"github.com/deckhand-node/deckhand/internal/cli"
	"github.com/deckhand-node/deckhand/internal/config"
	"github.com/deckhand-node/deckhand/internal/config/flags"
	"github.com/deckhand-node/deckhand/internal/lockfile"
	"github.com/deckhand-node/deckhand/internal/logging"
	"github.com/deckhand-node/deckhand/internal/takedown"
)

// DefaultRootDir is where deckhand keeps its state under its own name; called as
// kubelet it is config.DefaultRootDir, the kubelet's.
const DefaultRootDir = "/var/lib/deckhand"

// downGrace is how long containers may take to end in a take-down.
const downGrace = 10 * time.Second

// Commands are the bodies of the commands that run the agent or take it down,
// for a program called by the name argv0.
func Commands(argv0 string) cli.Deps {
	root, kubelet := DefaultRootDir, filepath.Base(argv0) == "kubelet"
	if kubelet {
		root = config.DefaultRootDir
	}
	c := &commands{flags: flags.New(root)}
	return cli.Deps{
		RootDir:    root,
		Kubelet:    kubelet,
		AgentFlags: c.flags,
		Agent:      c.agent,
		UpFlags:    c.addUpFlags,
		Up:         c.up,
		DownFlags:  nil,
		Down:       down,
	}
}

// commands holds what the flags of the commands are parsed into.
type commands struct {
	// flags are those of agent and up: only one of them is run.
	flags *flags.Set
	// images is the flag --images of up.
	images string
}

func (c *commands) addUpFlags(fs *pflag.FlagSet) {
	c.flags.AddTo(fs)
	fs.StringVar(&c.images, "images", "", "Copy the image archives (*.tar) in this `folder` to where the embedded runtime imports them from.")
}

// agent runs the agent with its log on standard error.
func (c *commands) agent(ctx context.Context, stdout io.Writer) error {
	host, err := takeOver(c.flags)
	if err != nil {
		return err
	}
	defer host.close()
	cfg, err := config.Load(ctx, c.flags)
	if err != nil {
		return err
	}
	err = host.run(ctx, cfg, stdout, os.Stderr)
	if cfg.Kubelet.RunOnce && errors.Is(err, context.Canceled) {
		return errOnceBrokenOff // before the agent began
	}
	return err
}

// up runs a standalone agent whose log goes to a file, so that the terminal is
// free for people.
func (c *commands) up(ctx context.Context, r cli.UpRequest) error {
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
		// Nobody typed that flag.
		cfg.Deprecated = slices.DeleteFunc(cfg.Deprecated, func(line string) bool { return strings.HasPrefix(line, "--pod-manifest-path:") })
	}
	if cfg.LockFile != "" || cfg.Kubelet.RunOnce {
		return errors.New("--lock-file and --runonce are for agents that nobody watches: use them with `deckhand agent`")
	}
	lacks, err := preflight(ctx, cfg)
	if err != nil {
		return err
	}
	if err := EmbeddedConfig(cfg).Claim(); err != nil {
		return err
	}
	if c.images != "" {
		if err := copyArchives(c.images, filepath.Join(cfg.RootDir, "images")); err != nil {
			return err
		}
	}
	file, err := openLog(filepath.Join(cfg.RootDir, "deckhand.log"))
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
	return host.serve(ctx, cfg, lacks, log)
}

// down takes down what an agent with this root folder made.
func down(ctx context.Context, r cli.DownRequest) error {
	if os.Geteuid() != 0 {
		return errors.New("not root: only root can take containers, mounts and network interfaces down")
	}
	root, err := filepath.Abs(r.RootDir)
	if err != nil {
		return err
	}
	if _, err := os.Stat(root); errors.Is(err, os.ErrNotExist) {
		r.Tell("There is no " + root + ": nothing to take down.")
		return nil
	}
	lock, err := lockfile.Acquire(root)
	if err != nil {
		return fmt.Errorf("stop the agent first: %w", err)
	}
	defer func() { _ = lock.Release() }() // it goes with the folder
	footprint, err := readFootprint(root)
	if err != nil {
		return err
	}
	log, err := logging.Open(logging.Config{Format: "text", Err: os.Stderr})
	if err != nil {
		return err
	}
	defer log.Close()
	if err := takedown.Down(ctx, footprint, log.Logger()); err != nil {
		return err
	}
	r.Tell("Everything deckhand made with " + root + " is gone.")
	return nil
}
