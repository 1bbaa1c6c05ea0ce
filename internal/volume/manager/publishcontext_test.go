package manager_test

import (
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/go-logr/logr/funcr"
	"google.golang.org/grpc/codes"
	v1 "k8s.io/api/core/v1"

	csidriver "github.com/deckhand-node/deckhand/test/csidriver/driver"
)

// The driver gets all of a publish_context, whatever its size. No message, event, log or file has a value of it, even
// if the driver repeats it.
func TestPublishContextIsSecret(t *testing.T) {
	const canary = "canary-0123456789-0123456789-abc"
	c := newCluster(t, "STAGE_UNSTAGE_VOLUME")
	var mu sync.Mutex
	var logged strings.Builder
	c.log = funcr.New(func(prefix, args string) {
		mu.Lock()
		defer mu.Unlock()
		fmt.Fprintln(&logged, prefix, args)
	}, funcr.Options{Verbosity: 10})
	m := c.agent()
	p := c.user(1)
	c.waits(m, p, "a controller has to attach it")
	large := strings.Repeat("x", 1<<20)
	c.attach("va-1", canary)
	c.change(func() { c.attached.Status.AttachmentMetadata["large"] = large })
	if got := c.used(); !slices.Equal(got, []v1.UniqueVolumeName{c.name()}) {
		t.Errorf("in use: %q", got)
	}
	var texts []string
	for _, method := range []string{"NodeStageVolume", "NodePublishVolume"} {
		rule, err := c.driver.Add(t.Context(), csidriver.Rule{Method: method, Do: csidriver.Fail, Code: codes.Unavailable, Count: 1,
			Message: "no device " + canary + " here"})
		must(t, err)
		eventually(t, method+" fails", func() bool {
			err := m.Prepare(t.Context(), p, c)
			if err != nil {
				texts = append(texts, failure(t, err).Message)
			}
			return err != nil && strings.Contains(err.Error(), method)
		})
		if last := texts[len(texts)-1]; !strings.Contains(last, "no device (secret) here") {
			t.Errorf("%s: %s", method, last)
		}
		must(t, c.driver.Release(t.Context(), rule))
	}
	eventually(t, "the volume is mounted", func() bool { return m.Prepare(t.Context(), p, c) == nil })
	s, err := c.driver.State(t.Context())
	must(t, err)
	for _, call := range s.Calls {
		got := map[string]string{}
		passes := call.Method == "NodeStageVolume" || call.Method == "NodePublishVolume"
		if err := call.Decode("publishContext", &got); passes && (err != nil || got["device"] != canary || got["large"] != large) {
			t.Errorf("%s got a publish_context of %d values, the large one of %d bytes", call.Method, len(got), len(got["large"]))
		}
	}
	files := 0
	must(t, filepath.WalkDir(c.root, func(path string, e fs.DirEntry, err error) error {
		if err != nil || !e.Type().IsRegular() {
			return err
		}
		text, err := os.ReadFile(path)
		files++
		texts = append(texts, string(text))
		return err
	}))
	mu.Lock()
	texts = append(append(texts, logged.String()), c.told()...)
	mu.Unlock()
	for _, text := range texts {
		if strings.Contains(text, canary) || strings.Contains(text, "xxxxxxxx") {
			t.Errorf("a publish_context in %.500q", text)
		}
	}
	if files < 3 || logged.Len() == 0 {
		t.Errorf("%d files, the log %q", files, logged.String())
	}
	must(t, m.Clean(t.Context(), p.UID))
	c.detach()
	c.finish()
}
