package manager_test

import (
	"strings"
	"testing"

	"google.golang.org/grpc/codes"

	csidriver "github.com/deckhand-node/deckhand/test/csidriver/driver"
)

// A volume is detached and attached again with the same VolumeAttachment: what was staged is useless. No pod waited
// meanwhile. The next pod waits until the mounts of before are gone, and gets the new publish_context.
func TestAttachedAgain(t *testing.T) {
	c := newCluster(t, "STAGE_UNSTAGE_VOLUME")
	m := c.agent()
	first, second := c.user(1), c.user(2)
	c.attach("va-1", "one")
	eventually(t, "it is mounted", func() bool { return m.Prepare(t.Context(), first, c) == nil })
	c.setRunning(first.UID, true)
	c.change(func() { c.listed = false })
	eventually(t, "an event", func() bool { return len(c.told()) > 0 })
	c.attach("va-1", "two")
	must(t, m.Prepare(t.Context(), first, c))
	err := m.Prepare(t.Context(), second, c)
	if err == nil || !strings.Contains(err.Error(), "while pods use it") {
		t.Errorf("got %v", err)
	}
	c.wantCalls("Stage one", "Publish one")
	c.setRunning(first.UID, false)
	must(t, m.Clean(t.Context(), first.UID))
	eventually(t, "the second pod starts", func() bool { return m.Prepare(t.Context(), second, c) == nil })
	c.wantCalls("Unpublish", "Unstage", "Stage two", "Publish two")

	// A third pod shares what is staged now.
	third := c.user(3)
	must(t, m.Prepare(t.Context(), third, c))
	must(t, m.Clean(t.Context(), second.UID))
	must(t, m.Clean(t.Context(), third.UID))
	c.wantCalls("Publish two", "Unpublish", "Unpublish", "Unstage")
	c.detach()
	c.finish()
}

// The same for a staged device that no pod uses any more, because it couldn't be unstaged.
func TestLeftDeviceIsAttachedAgain(t *testing.T) {
	c := newCluster(t, "STAGE_UNSTAGE_VOLUME")
	m := c.agent()
	p := c.user(1)
	c.attach("va-1", "one")
	eventually(t, "it is mounted", func() bool { return m.Prepare(t.Context(), p, c) == nil })
	rule, err := c.driver.Add(t.Context(), csidriver.Rule{Method: "NodeUnstageVolume", Count: -1, Do: csidriver.Fail, Code: codes.Internal})
	must(t, err)
	must(t, m.Clean(t.Context(), p.UID))
	c.change(func() { c.listed = false })
	c.waits(m, p, "a controller has to attach it")
	c.attach("va-1", "one")
	must(t, c.driver.Release(t.Context(), rule))
	eventually(t, "it is mounted again", func() bool { return m.Prepare(t.Context(), p, c) == nil })
	calls := strings.Join(c.calls(), ", ")
	if !strings.HasSuffix(calls, "Unstage, Stage one, Publish one") {
		t.Errorf("calls: %s", calls)
	}
	must(t, m.Clean(t.Context(), p.UID))
	c.detach()
	c.finish()
}
