package logging_test

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"math"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	"k8s.io/klog/v2"

	"github.com/deckhand-node/deckhand/internal/logging"
)

func TestText(t *testing.T) {
	var out bytes.Buffer
	log, flush, err := logging.New("text", 2, &out)
	if err != nil {
		t.Fatal(err)
	}
	log.V(2).Info("Pod started", "pod", "default/a", "attempt", 1)
	log.V(3).Info("too much detail")
	log.Error(errors.New("no space"), "Pod not started", "pod", "default/b")
	flush()
	want := regexp.MustCompile(`^I\d{4} \d\d:\d\d:\d\d\.\d{6} +\d+ logging_test\.go:\d+\] "Pod started" pod="default/a" attempt=1
E\d{4} \d\d:\d\d:\d\d\.\d{6} +\d+ logging_test\.go:\d+\] "Pod not started" err="no space" pod="default/b"
$`)
	if !want.Match(out.Bytes()) {
		t.Errorf("got:\n%s", &out)
	}
}

func TestJSON(t *testing.T) {
	var out bytes.Buffer
	log, flush, err := logging.New("json", 2, &out)
	if err != nil {
		t.Fatal(err)
	}
	before := time.Now()
	log.V(2).Info("Pod started", "pod", "default/a")
	log.V(3).Info("too much detail")
	log.Error(errors.New("no space"), "Pod not started")
	flush()
	type line struct {
		TS          float64
		Caller, Msg string
		V           *int
		Err         string
		Pod         string
	}
	var lines []line
	for s := bufio.NewScanner(&out); s.Scan(); {
		var l line
		if err := json.Unmarshal(s.Bytes(), &l); err != nil {
			t.Fatalf("%s: %v", s.Text(), err)
		}
		lines = append(lines, l)
	}
	if len(lines) != 2 {
		t.Fatalf("%d lines, want 2", len(lines))
	}
	info, failure := lines[0], lines[1]
	if math.Abs(info.TS-float64(before.UnixNano())/1e6) > 10_000 || !strings.HasPrefix(info.Caller, "logging/logging_test.go:") ||
		info.Msg != "Pod started" || info.V == nil || *info.V != 2 || info.Pod != "default/a" {
		t.Errorf("info: %+v", info)
	}
	if failure.Err != "no space" || failure.V != nil || failure.Msg != "Pod not started" {
		t.Errorf("error: %+v", failure)
	}
}

func TestUnknownFormat(t *testing.T) {
	if _, _, err := logging.New("xml", 0, &bytes.Buffer{}); err == nil || !strings.Contains(err.Error(), `"xml"`) {
		t.Errorf("got %v", err)
	}
}

// The race detector finds what isn't locked; torn lines are found here.
func TestConcurrentLinesStayWhole(t *testing.T) {
	for _, format := range []string{"text", "json"} {
		var out bytes.Buffer
		log, flush, err := logging.New(format, 0, &out)
		if err != nil {
			t.Fatal(err)
		}
		var wg sync.WaitGroup
		for range 8 {
			wg.Go(func() {
				for range 50 {
					log.Info("marker")
				}
			})
		}
		wg.Wait()
		flush()
		lines := strings.Split(strings.TrimSuffix(out.String(), "\n"), "\n")
		if len(lines) != 400 {
			t.Errorf("%s: %d lines, want 400", format, len(lines))
		}
		for _, l := range lines {
			if strings.Count(l, "marker") != 1 {
				t.Fatalf("%s: torn line %q", format, l)
			}
		}
	}
}

func TestLibrariesAreRedirected(t *testing.T) {
	var out bytes.Buffer
	log, _, err := logging.New("text", 4, &out)
	if err != nil {
		t.Fatal(err)
	}
	state := klog.CaptureState()
	t.Cleanup(state.Restore)
	if err := logging.RedirectLibraries(log, 4); err != nil {
		t.Fatal(err)
	}
	klog.V(4).InfoS("Library detail", "key", "value")
	klog.V(5).InfoS("too much detail")
	klog.Background().V(4).Info("Contextual")
	if got := out.String(); !strings.Contains(got, `logging_test.go`) || !strings.Contains(got, `"Library detail" key="value"`) ||
		!strings.Contains(got, `"Contextual"`) || strings.Contains(got, "too much") {
		t.Errorf("got:\n%s", got)
	}
}
