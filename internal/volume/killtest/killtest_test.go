package killtest

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/deckhand-node/deckhand/internal/volume/mounttest"
)

func TestMain(m *testing.M) { os.Exit(mounttest.Run(m)) }

// names are those in the directory.
func names(t *testing.T, dir string) []string {
	t.Helper()
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	got := []string{}
	for _, e := range entries {
		got = append(got, e.Name())
	}
	return got
}

func TestEveryStepIsStoppedAtOnce(t *testing.T) {
	var points []int
	Run(t, Case{
		Name: "directories",
		Fresh: func(t *testing.T, dir string) {
			if err := os.Mkdir(filepath.Join(dir, "0"), 0o755); err != nil {
				t.Fatal(err)
			}
		},
		Child: func(dir string) error {
			for i := 1; i <= 3; i++ {
				if _, err := os.ReadDir(dir); err != nil { // no step
					return err
				}
				if err := os.Mkdir(filepath.Join(dir, fmt.Sprint(i)), 0o755); err != nil {
					return err
				}
			}
			return nil
		},
		Check: func(t *testing.T, dir string, n int) {
			points = append(points, n)
			want := []string{"0", "1", "2", "3"}[:n]
			if got := names(t, dir); !slices.Equal(got, want) {
				t.Errorf("directories %q, want %q", got, want)
			}
		},
	})
	if os.Getenv(envCase) == "" && !slices.Equal(points, []int{1, 2, 3, 4}) {
		t.Errorf("checked after steps %v", points)
	}
}

// TestStepsOfEachKind has a child that takes one step of each kind, in threads that come and go.
func TestStepsOfEachKind(t *testing.T) {
	steps := []struct {
		name string
		take func(dir string) error
	}{
		{"openat", func(dir string) error { return os.WriteFile(dir+"/file", nil, 0o600) }},
		{"openat2", func(dir string) error {
			fd, err := unix.Openat2(unix.AT_FDCWD, dir+"/file2", &unix.OpenHow{Flags: unix.O_CREAT | unix.O_WRONLY, Mode: 0o600})
			return errors.Join(err, unix.Close(fd))
		}},
		{"write", func(dir string) error {
			f, err := os.OpenFile(dir+"/file", os.O_WRONLY, 0) // no step
			if err != nil {
				return err
			}
			_, err = f.WriteString("text")
			return errors.Join(err, f.Close())
		}},
		{"fchmodat", func(dir string) error { return unix.Chmod(dir+"/file", 0o640) }},
		{"fchownat", func(dir string) error { return unix.Lchown(dir+"/file", 1, 1) }},
		{"truncate", func(dir string) error { return unix.Truncate(dir+"/file", 1) }},
		{"rename", func(dir string) error { return os.Rename(dir+"/file", dir+"/other") }},
		{"symlink", func(dir string) error { return os.Symlink("other", dir+"/link") }},
		{"link", func(dir string) error { return os.Link(dir+"/other", dir+"/hard") }},
		{"unlink", func(dir string) error { return unix.Unlink(dir + "/link") }},
		{"mkdir", func(dir string) error { return os.Mkdir(dir+"/mounted", 0o755) }},
		{"mount", func(dir string) error { return unix.Mount("tmpfs", dir+"/mounted", "tmpfs", 0, "") }},
		{"umount2", func(dir string) error { return unix.Unmount(dir+"/mounted", 0) }},
	}
	reached := 0
	Run(t, Case{
		Child: func(dir string) error {
			for _, s := range steps {
				var wg sync.WaitGroup
				var err error
				wg.Go(func() { err = s.take(dir) })
				for range 4 {
					wg.Go(func() { _, _ = os.ReadDir("/proc") })
				}
				wg.Wait()
				if err != nil {
					return fmt.Errorf("%s: %w", s.name, err)
				}
				fmt.Println("took", s.name) // the child's output is no step
			}
			return nil
		},
		Check: func(t *testing.T, dir string, n int) { reached = n },
	})
	if os.Getenv(envCase) == "" && reached != len(steps)+1 {
		t.Errorf("the child was at its end with step %d, want %d", reached, len(steps)+1)
	}
}

// TestWhatTheChildStartedEnds: a program that the child runs is part of it.
func TestWhatTheChildStartedEnds(t *testing.T) {
	Run(t, Case{
		Child: func(dir string) error { return exec.Command("touch", dir+"/a", dir+"/b").Run() },
		Check: func(t *testing.T, dir string, n int) {
			got := strings.Join(names(t, dir), "")
			if n == 1 && got != "" || !strings.HasPrefix("ab", got) {
				t.Errorf("killed at step %d, files %q", n, got)
			}
		},
	})
}

// TestWhatGoesWrongInAChildIsReported runs children that don't do their work.
func TestWhatGoesWrongInAChildIsReported(t *testing.T) {
	self := func(how string) (result, error) {
		return trace(command{
			args: []string{"-test.run=^TestChildThatGoesWrong$"},
			env:  append(os.Environ(), envCase+"=TestChildThatGoesWrong", envDir+"="+how), calls: steps,
		}, 1)
	}
	t.Run("an error", func(t *testing.T) {
		end, err := self("error")
		if err != nil || !end.done || !end.failed || !strings.Contains(end.output, "out of rope") {
			t.Errorf("%+v, %v", end, err)
		}
	})
	t.Run("an end of its own", func(t *testing.T) {
		end, err := self("exit")
		if err != nil || end.done || end.killed {
			t.Errorf("%+v, %v", end, err)
		}
	})
}

// TestChildThatGoesWrong is what the children of TestWhatGoesWrongInAChildIsReported run; by itself it is nothing.
func TestChildThatGoesWrong(t *testing.T) {
	if os.Getenv(envCase) == "" {
		return
	}
	Run(t, Case{Child: func(how string) error {
		if how == "exit" {
			os.Exit(3)
		}
		return errors.New("out of rope")
	}})
}

func TestCallsAreCounted(t *testing.T) {
	n := Calls(t, func() error {
		fd, err := unix.Open("/proc/self/stat", unix.O_RDONLY|unix.O_CLOEXEC, 0)
		if err == nil {
			_, err = unix.Read(fd, make([]byte, 1))
		}
		unix.Getpid() // has nothing to do with files
		return errors.Join(err, unix.Access("/proc", unix.F_OK), unix.Close(fd))
	})
	if os.Getenv(envCase) == "" && n != 4 {
		t.Errorf("counted %d calls, want open, read, access and close", n)
	}
}

func TestPatternChoosesOneTest(t *testing.T) {
	if got, want := pattern("TestA/b+c|d"), `^TestA$/^b\+c\|d$`; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
}
