package logging_test

import (
	"bytes"
	"fmt"
	"math"
	"strings"
	"sync"
	"testing"

	"github.com/go-logr/logr"
	"k8s.io/klog/v2"

	"github.com/deckhand-node/deckhand/internal/kit/logging"
)

// messages are those of the markers m0 to m9 that were logged since the last call.
func messages(b *bytes.Buffer) string {
	defer b.Reset()
	var found []string
	for n := range 10 {
		if m := fmt.Sprintf("m%d", n); strings.Contains(b.String(), `"`+m+`"`) {
			found = append(found, m)
		}
	}
	return strings.Join(found, " ")
}

func set(t *testing.T, l *logging.Log, verbosity uint32, vmodule string) {
	t.Helper()
	if err := l.SetVerbosity(verbosity, vmodule); err != nil {
		t.Fatal(err)
	}
}

func TestTheVerbosityCanBeChanged(t *testing.T) {
	for _, format := range []string{"text", "json"} {
		var out bytes.Buffer
		l := open(t, logging.Config{Format: format, Verbosity: 1, Err: &out})
		derived := l.Logger().WithName("a").WithValues("k", 1).V(1)
		speak := func() {
			l.Logger().Info("m0")
			l.Logger().V(4).Info("m1")
			derived.Info("m2")
			derived.V(2).Info("m3") // together 3
			l.Logger().V(100).Error(nil, "m4")
			l.Logger().V(200).Info("m5")
		}
		for _, step := range []struct {
			verbosity uint32
			want      string
		}{
			{1, "m0 m2 m4"}, {4, "m0 m1 m2 m3 m4"}, {0, "m0 m4"}, {3, "m0 m2 m3 m4"}, {255, "m0 m1 m2 m3 m4 m5"}, {math.MaxInt32, "m0 m1 m2 m3 m4 m5"}, {1, "m0 m2 m4"},
		} {
			set(t, l, step.verbosity, "")
			speak()
			if got := messages(&out); got != step.want {
				t.Errorf("%s with %d: logged %s, want %s", format, step.verbosity, got, step.want)
			}
		}
		for verbosity, vmodule := range map[uint32]string{math.MaxInt32 + 1: "", 9: "a"} {
			if err := l.SetVerbosity(verbosity, vmodule); err == nil {
				t.Errorf("%s: %d and %q are taken", format, verbosity, vmodule)
			}
		}
		if speak(); messages(&out) != "m0 m2 m4" {
			t.Errorf("%s: refused, and yet in force", format)
		}
	}
}

func TestFilesHaveVerbosities(t *testing.T) {
	var out bytes.Buffer
	l := open(t, logging.Config{Format: "text", VModule: "level_test=4", Err: &out})
	speak := func() {
		for n, log := range []logr.Logger{l.Logger(), l.Logger().WithName("a").WithValues("k", 1)} {
			log.V(4).Info(fmt.Sprintf("m%d", 0+4*n))
			logElsewhere(log, fmt.Sprintf("m%d", 1+4*n))
			logForCaller(log, fmt.Sprintf("m%d", 2+4*n))
			if log.V(4).Enabled() {
				log.V(3).Info(fmt.Sprintf("m%d", 3+4*n))
			}
		}
		l.Logger().V(5).Info("m8")
	}
	for _, step := range []struct {
		verbosity     uint32
		vmodule, want string
	}{
		{0, "level_test=4", "m0 m2 m3 m4 m6 m7"},
		{0, "elsewhere_test=4", "m1 m5"},
		{0, "else*=9,other=3", "m1 m5"},
		{0, "level_test=3,level_*=5", ""}, // the first that matches counts
		{0, "*_test=5", "m0 m1 m2 m3 m4 m5 m6 m7 m8"},
		{4, "other=5", "m0 m1 m2 m3 m4 m5 m6 m7"},
		{0, "", ""},
	} {
		set(t, l, step.verbosity, step.vmodule)
		speak()
		if got := messages(&out); got != step.want {
			t.Errorf("%d and %q: logged %s, want %s", step.verbosity, step.vmodule, got, step.want)
		}
	}
}

func TestNoLineIsLostWhileTheLevelChanges(t *testing.T) {
	for _, format := range []string{"text", "json"} {
		var out bytes.Buffer
		l := open(t, logging.Config{Format: format, Verbosity: 2, Err: &out})
		vmodule := func(text string) string {
			if format == "json" {
				return ""
			}
			return text
		}
		var writers, changer sync.WaitGroup
		stop := make(chan struct{})
		changer.Go(func() {
			for {
				select {
				case <-stop:
					return
				default:
					set(t, l, 4, vmodule("level_test=3"))
					set(t, l, 2, vmodule(""))
				}
			}
		})
		const each, hands = 2000, 4
		for range hands {
			writers.Go(func() {
				log := l.Logger().WithName("writer")
				for range each {
					log.V(2).Info("always")
					log.V(4).Info("at times")
					log.V(5).Info("never")
				}
			})
		}
		writers.Wait()
		close(stop)
		changer.Wait()
		if got := strings.Count(out.String(), "always"); got != each*hands {
			t.Errorf("%s: %d lines, want %d", format, got, each*hands)
		}
		if strings.Contains(out.String(), "never") {
			t.Errorf("%s: more was logged than was ever asked for", format)
		}
	}
}

func TestLibraries(t *testing.T) {
	state := klog.CaptureState()
	t.Cleanup(state.Restore)
	var out, errs bytes.Buffer
	l := open(t, logging.Config{Format: "text", Verbosity: 4, SplitStream: true, Out: &out, Err: &errs})
	if err := l.RedirectLibraries(); err != nil {
		t.Fatal(err)
	}
	speak := func() {
		klog.V(4).InfoS("m0", "key", "value")
		klog.V(5).InfoS("m1")
		klog.Background().V(4).Info("m2")
		klogElsewhere("m3")
		klog.V(4).Infof(`"m%d"`, 4)
	}
	for _, step := range []struct {
		verbosity     uint32
		vmodule, want string
	}{
		{4, "", "m0 m2 m3 m4"}, {0, "", ""}, {5, "", "m0 m1 m2 m3 m4"}, {0, "elsewhere_test=4", "m3"}, {0, "level_test=4", "m0 m2 m4"}, {4, "", "m0 m2 m3 m4"},
	} {
		set(t, l, step.verbosity, step.vmodule)
		speak()
		if step.verbosity == 5 && !strings.Contains(out.String(), `level_test.go`) {
			t.Errorf("not told who logs: %s", &out)
		}
		if got := messages(&out); got != step.want {
			t.Errorf("%d and %q: logged %s, want %s", step.verbosity, step.vmodule, got, step.want)
		}
	}
	klog.Warningf("%q", "m5")
	klog.ErrorS(nil, "m6")
	if first := errs.String()[0]; first != 'W' || messages(&errs) != "m5 m6" || out.Len() > 0 {
		t.Errorf("a warning begins with %c", first)
	}
}

func TestLibrariesInJSON(t *testing.T) {
	state := klog.CaptureState()
	t.Cleanup(state.Restore)
	var out bytes.Buffer
	l := open(t, logging.Config{Format: "json", Err: &out})
	if err := l.RedirectLibraries(); err != nil {
		t.Fatal(err)
	}
	klog.V(1).Infof("m%d", 0)
	klog.Warning("m1")
	if got := messages(&out); got != "m1" {
		t.Errorf("logged %s", got)
	}
	set(t, l, 1, "")
	klog.V(1).Infof("m%d", 0)
	klog.V(1).InfoS("m2")
	if got := messages(&out); got != "m0 m2" {
		t.Errorf("logged %s", got)
	}
}
