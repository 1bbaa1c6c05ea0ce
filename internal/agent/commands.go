package agent

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"time"

	"github.com/spf13/pflag"

	"github.com/deckhand-node/deckhand/internal/cli"
	"github.com/deckhand-node/deckhand/internal/config"
	"github.com/deckhand-node/deckhand/internal/hostcheck"
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
	c := &commands{root: DefaultRootDir}
	if filepath.Base(argv0) == "kubelet" {
		c.root = config.DefaultRootDir
	}
	return cli.Deps{
		RootDir:    c.root,
		AgentFlags: c.flags,
		Agent:      c.agent,
		UpFlags:    c.upFlags,
		Up:         c.up,
		DownFlags:  nil,
		Down:       down,
	}
}

// commands holds what the flags of the commands are parsed into.
type commands struct {
	root                      string
	agentSettings, upSettings config.Options
	// images is the flag --images of up.
	images string
}

func (c *commands) flags(fs *pflag.FlagSet) { c.settings(fs, &c.agentSettings) }

func (c *commands) settings(fs *pflag.FlagSet, o *config.Options) {
	config.AddFlags(fs, o)
	fs.Lookup("root-dir").DefValue = c.root
	o.RootDir = c.root
}

func (c *commands) upFlags(fs *pflag.FlagSet) {
	c.settings(fs, &c.upSettings)
	fs.StringVar(&c.images, "images", "", "Copy the image archives (*.tar) in this `folder` to where the embedded runtime imports them from.")
}

// agent runs the agent with its log on standard error.
func (c *commands) agent(ctx context.Context, _ *pflag.FlagSet) error {
	cfg, err := config.Load(c.agentSettings)
	if err != nil {
		return err
	}
	lacks, err := preflight(ctx, cfg)
	if err != nil {
		return err
	}
	return run(ctx, cfg, os.Stderr, lacks, nil)
}

// up runs a standalone agent whose log goes to a file, so that the terminal is
// free for people.
func (c *commands) up(ctx context.Context, r cli.UpRequest) error {
	if r.Manifests != "" {
		if err := r.Flags.Set("pod-manifest-path", r.Manifests); err != nil {
			return err
		}
	}
	cfg, err := config.Load(c.upSettings)
	if err != nil {
		return err
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
	log, err := openLog(filepath.Join(cfg.RootDir, "deckhand.log"))
	if err != nil {
		return err
	}
	defer log.Close()
	return run(ctx, cfg, log, lacks, r.Started)
}

// run runs the agent until ctx ends. lacks is what preflight found that the agent
// gets by without.
func run(ctx context.Context, cfg *config.Config, logTo io.Writer, lacks []string, started func()) error {
	log, flush, err := logging.New(cfg.Kubelet.Logging.Format, uint32(cfg.Kubelet.Logging.Verbosity), logTo)
	if err != nil {
		return err
	}
	defer flush()
	if err := logging.RedirectLibraries(log, uint32(cfg.Kubelet.Logging.Verbosity)); err != nil {
		return err
	}
	for _, line := range lacks {
		log.Info("The host lacks something", "problem", line)
	}
	for _, line := range cfg.NotActedOn {
		log.Info("A setting has no effect in this build", "setting", line)
	}
	a, err := New(cfg, log)
	if err != nil {
		return err
	}
	a.started = started
	log.Info("Agent starts", "version", version(), "rootDir", cfg.RootDir, "node", cfg.NodeName, "embeddedRuntime", cfg.UsesEmbeddedRuntime())
	err = a.Run(ctx)
	log.Info("Agent stopped", "err", err)
	return err
}

// preflight looks whether the agent can run here, and changes nothing. It returns
// what the host lacks that the agent gets by without.
func preflight(ctx context.Context, cfg *config.Config) (lacks []string, err error) {
	if os.Geteuid() != 0 {
		return nil, errors.New("not root: deckhand makes containers, mounts and network interfaces; run it as root")
	}
	if _, err := os.Stat(cfg.RootDir); err == nil {
		lock, err := lockfile.Acquire(cfg.RootDir)
		if err != nil {
			return nil, err
		}
		if err := lock.Release(); err != nil {
			return nil, err
		}
	}
	if !cfg.UsesEmbeddedRuntime() {
		return nil, nil
	}
	check := hostcheck.Config{Runtime: EmbeddedConfig(cfg)}
	if cfg.Healthz.Port() != 0 {
		check.Listen = append(check.Listen, cfg.Healthz.String())
	}
	if cfg.ReadOnly.Port() != 0 {
		check.Listen = append(check.Listen, cfg.ReadOnly.String())
	}
	problems := hostcheck.Check(ctx, check)
	if err := ctx.Err(); err != nil {
		return nil, err // checks that were broken off say nothing about the host
	}
	for _, p := range problems {
		if !p.Fatal {
			lacks = append(lacks, p.Message)
		}
	}
	return lacks, hostcheck.Fatal(problems)
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
	log, flush, err := logging.New("text", 0, os.Stderr)
	if err != nil {
		return err
	}
	defer flush()
	if err := takedown.Down(ctx, footprint, log); err != nil {
		return err
	}
	r.Tell("Everything deckhand made with " + root + " is gone.")
	return nil
}
