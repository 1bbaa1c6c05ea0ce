package rig

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/go-logr/logr"
	"golang.org/x/sys/unix"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/deckhand-node/deckhand/internal/agent/reset"
	"github.com/deckhand-node/deckhand/internal/runtime/embedded"
	"github.com/deckhand-node/deckhand/internal/runtime/embedded/orphans"
)

// Image is the image of measured pods.
const Image = "deckhand.local/web:1"

// Sleep returns the arguments of pods of Image: they do nothing until SIGTERM.
func Sleep() []string { return []string{"sleep", "24h"} }

// What the stage takes of the host's names.
const (
	bridge     = "dhbench0"
	podCIDR    = "10.217.0.0/22"
	cgroupRoot = "/deckhand-bench"
)

// Stage is a containerd. Its methods are for one goroutine.
type Stage struct {
	// Endpoint is the CRI's, as unix:///path, and CRI a connection to it.
	Endpoint string
	CRI      *grpc.ClientConn
	// CgroupRoot and PodCIDR are what an agent on this stage has to use.
	CgroupRoot, PodCIDR string
	// Dir is a directory for measurements; it goes with the stage.
	Dir string

	root   string
	config embedded.Config
	stop   context.CancelFunc
	ended  chan error
	// turn is locked while the stage is up: two of them would measure each other.
	turn *os.File
}

// StartStage starts containerd with the programs and images in binDir, once no other stage is
// up on this host. It needs root.
// Close takes down what it made, after an error of StartStage too.
func StartStage(ctx context.Context, binDir string) (*Stage, error) {
	if os.Geteuid() != 0 {
		return nil, errors.New("real containers need root: run this as root")
	}
	turn, err := takeTurn()
	if err != nil {
		return nil, err
	}
	root, err := os.MkdirTemp("", "deckhand-bench-")
	if err != nil {
		return nil, errors.Join(err, turn.Close())
	}
	s := &Stage{
		CgroupRoot: cgroupRoot, PodCIDR: podCIDR, Dir: filepath.Join(root, "work"), root: root,
		config: embedded.Config{RootDir: filepath.Join(root, "runtime"), BinDirs: []string{binDir}, PodCIDR: podCIDR, Bridge: bridge},
		stop:   func() {}, turn: turn,
	}
	if err := s.start(ctx, binDir); err != nil {
		return nil, errors.Join(fmt.Errorf("start containerd to measure with: %w", err), s.Close())
	}
	return s, nil
}

// takeTurn waits until no other stage is up. Closing the file ends the turn.
func takeTurn() (*os.File, error) {
	f, err := os.OpenFile(filepath.Join(os.TempDir(), "deckhand-bench.lock"), os.O_CREATE|os.O_RDWR|unix.O_NOFOLLOW, 0o600)
	if err != nil {
		return nil, err
	}
	if err := unix.Flock(int(f.Fd()), unix.LOCK_EX); err != nil {
		return nil, errors.Join(fmt.Errorf("wait for the turn to measure: %w", err), f.Close())
	}
	return f, nil
}

func (s *Stage) start(ctx context.Context, binDir string) error {
	if err := s.config.Claim(); err != nil {
		return err
	}
	images := filepath.Join(s.config.RootDir, "images")
	for _, dir := range []string{images, s.Dir} {
		if err := os.MkdirAll(dir, 0o755); err != nil {
			return err
		}
	}
	for _, archive := range []string{"pause.tar", "web.tar"} {
		if err := os.Symlink(filepath.Join(binDir, "images", archive), filepath.Join(images, archive)); err != nil {
			return err
		}
	}
	runtime, err := embedded.New(s.config, logr.Discard())
	if err != nil {
		return err
	}
	if err := runtime.Start(ctx); err != nil {
		return err
	}
	s.Endpoint = runtime.Endpoint()
	if s.CRI, err = grpc.NewClient(s.Endpoint,
		grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(64<<20))); err != nil {
		return err
	}
	supervise, stop := context.WithCancel(context.WithoutCancel(ctx))
	s.stop, s.ended = stop, make(chan error, 1)
	go func() { s.ended <- runtime.Run(supervise) }()
	if problems := runtime.Problems(); len(problems) > 0 {
		return errors.New(strings.Join(problems, "; "))
	}
	return nil
}

// Programs are the processes of the runtime that there are: containerd and what it has for each pod.
func (s *Stage) Programs() ([]int, error) {
	lines, err := filepath.Glob("/proc/[0-9]*/cmdline")
	if err != nil {
		return nil, err
	}
	var pids []int
	for _, file := range lines {
		line, err := os.ReadFile(file)
		if err != nil {
			continue // it has ended
		}
		program, args, _ := strings.Cut(string(line), "\x00")
		if pid, err := strconv.Atoi(filepath.Base(filepath.Dir(file))); err == nil && strings.HasPrefix(filepath.Base(program), "containerd") && strings.Contains(args, s.root) {
			pids = append(pids, pid)
		}
	}
	if len(pids) == 0 {
		return nil, errors.New("the runtime has no process")
	}
	return pids, nil
}

// Close takes down every pod, containerd and all it made on the host.
func (s *Stage) Close() error {
	s.stop()
	var errs []error
	if s.CRI != nil {
		errs = append(errs, s.CRI.Close())
	}
	if s.ended != nil {
		errs = append(errs, <-s.ended)
	}
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	errs = append(errs, reset.Run(ctx, reset.Config{Runtime: s.config, CgroupRoot: cgroupRoot}, logr.Discard()),
		orphans.Unmount(s.root)) // agents have bound their root directories on themselves
	return errors.Join(append(errs, os.RemoveAll(s.root), s.turn.Close())...)
}
