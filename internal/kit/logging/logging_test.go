package logging_test

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"math"
	"os"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	logsapi "k8s.io/component-base/logs/api/v1"

	"github.com/deckhand-node/deckhand/internal/kit/logging"
)

func open(t testing.TB, c logging.Config) *logging.Log {
	t.Helper()
	l, err := logging.Open(c)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(l.Close)
	return l
}

func TestText(t *testing.T) {
	var out bytes.Buffer
	log := open(t, logging.Config{Format: "text", Verbosity: 2, Err: &out}).Logger()
	log.V(2).Info("Pod started", "pod", "default/a", "attempt", 1)
	log.V(3).Info("too much detail")
	log.WithName("gc").WithValues("disk", "/").Error(errors.New("no space"), "Pod not started", "pod", "default/b")
	want := regexp.MustCompile(`^I\d{4} \d\d:\d\d:\d\d\.\d{6} +\d+ logging_test\.go:\d+\] "Pod started" pod="default/a" attempt=1
E\d{4} \d\d:\d\d:\d\d\.\d{6} +\d+ logging_test\.go:\d+\] "Pod not started" err="no space" logger="gc" disk="/" pod="default/b"
$`)
	if !want.Match(out.Bytes()) {
		t.Errorf("got:\n%s", &out)
	}
}

func TestJSON(t *testing.T) {
	var out bytes.Buffer
	log := open(t, logging.Config{Format: "json", Verbosity: 2, Err: &out}).Logger()
	before := time.Now()
	log.V(2).Info("Pod started", "pod", "default/a")
	log.V(3).Info("too much detail")
	log.Error(errors.New("no space"), "Pod not started")
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

func TestWhatIsNotPossible(t *testing.T) {
	for want, c := range map[string]logging.Config{
		`format "xml"`:     {Format: "xml"},
		`verbosity 2147`:   {Format: "text", Verbosity: math.MaxInt32 + 1},
		`only the log for`: {Format: "json", VModule: "a=1"},
		`"a="`:             {Format: "text", VModule: "a="},
		`frequency -1s`:    {Format: "text", SplitStream: true, InfoBufferSize: 1, FlushFrequency: -time.Second, Out: &bytes.Buffer{}},
		`frequency 0s`:     {Format: "text", SplitStream: true, InfoBufferSize: 1, Out: &bytes.Buffer{}},
	} {
		c.Err = &bytes.Buffer{}
		if _, err := logging.Open(c); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%+v: error %v, want %s in it", c, err, want)
		}
	}
}

func TestCheckVModule(t *testing.T) {
	for _, good := range []string{"", "gc=4", "gc*=4,wor[kx]er=0,", "a=2147483647"} {
		if err := logging.CheckVModule(good); err != nil {
			t.Errorf("%q: %v", good, err)
		}
	}
	for text, want := range map[string][]string{
		"gc": {`"gc"`, "pattern=N"}, "gc=": {"pattern=N"}, "=4": {"pattern=N"}, "gc=-1": {`"gc=-1"`}, "gc=2147483648": {"out of range"}, "a=1=2": {"pattern=N"},
		"a=1,[=2,x=3,[z-=4": {`"["`, `"[z-"`},
	} {
		err := logging.CheckVModule(text)
		for _, part := range want {
			if err == nil || !strings.Contains(err.Error(), part) {
				t.Errorf("%q: error %v, want %q in it", text, err, part)
			}
		}
	}
}

func TestConfigOf(t *testing.T) {
	split := func(size int64) logsapi.OutputRoutingOptions {
		return logsapi.OutputRoutingOptions{SplitStream: true, InfoBufferSize: resource.QuantityValue{Quantity: *resource.NewQuantity(size, resource.BinarySI)}}
	}
	c := logsapi.LoggingConfiguration{Format: "text", Verbosity: 3, FlushFrequency: logsapi.TimeOrMetaDuration{Duration: metav1.Duration{Duration: 5 * time.Second}},
		VModule: logsapi.VModuleConfiguration{{FilePattern: "gc*", Verbosity: 4}, {FilePattern: "worker", Verbosity: 5}}}
	c.Options.JSON.OutputRoutingOptions = split(1 << 10)
	want := logging.Config{Format: "text", Verbosity: 3, VModule: "gc*=4,worker=5", FlushFrequency: 5 * time.Second, Out: os.Stdout, Err: os.Stderr}
	same := cmp.Comparer(func(a, b *os.File) bool { return a == b })
	if diff := cmp.Diff(want, logging.ConfigOf(&c, os.Stdout, os.Stderr), same); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	c.Format, c.VModule = "json", nil
	want.Format, want.VModule, want.SplitStream, want.InfoBufferSize = "json", "", true, 1<<10
	if diff := cmp.Diff(want, logging.ConfigOf(&c, os.Stdout, os.Stderr), same); diff != "" {
		t.Errorf("json (-want +got):\n%s", diff)
	}
	c.Format, c.Options.Text.OutputRoutingOptions = "text", split(7)
	if got := logging.ConfigOf(&c, nil, nil); !got.SplitStream || got.InfoBufferSize != 7 {
		t.Errorf("text: %+v", got)
	}
}

// The race detector finds what isn't locked; torn lines are found here.
func TestConcurrentLinesStayWhole(t *testing.T) {
	for _, format := range []string{"text", "json"} {
		for name, c := range map[string]logging.Config{"one stream": {}, "split": {SplitStream: true}, "held": {SplitStream: true, InfoBufferSize: 1000, FlushFrequency: time.Millisecond},
			"hardly held": {SplitStream: true, InfoBufferSize: 1000, FlushFrequency: time.Nanosecond}} {
			var out bytes.Buffer // one file for both streams, as in `deckhand up`
			c.Format, c.Out, c.Err = format, &out, &out
			l := open(t, c)
			var wg sync.WaitGroup
			for n := range 8 {
				wg.Go(func() {
					for range 50 {
						if n%2 == 0 {
							l.Logger().Info("marker")
						} else {
							l.Logger().Error(nil, "marker")
						}
					}
				})
			}
			wg.Wait()
			l.Close()
			lines := strings.Split(strings.TrimSuffix(out.String(), "\n"), "\n")
			if len(lines) != 400 {
				t.Errorf("%s, %s: %d lines, want 400", format, name, len(lines))
			}
			for _, line := range lines {
				if strings.Count(line, "marker") != 1 {
					t.Fatalf("%s, %s: torn line %q", format, name, line)
				}
			}
		}
	}
}
