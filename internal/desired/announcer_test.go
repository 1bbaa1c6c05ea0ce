package desired

import (
	"context"
	"slices"
	"testing"
	"testing/synctest"

	"github.com/go-logr/logr/testr"
	v1 "k8s.io/api/core/v1"

	"github.com/deckhand-node/deckhand/internal/pod"
	"github.com/deckhand-node/deckhand/internal/report/events"
)

// eventLog records the events: "REASON OBJECT: MESSAGE".
type eventLog struct{ list []string }

func (l *eventLog) Add(e events.Entry) {
	l.list = append(l.list, string(e.Reason)+" "+e.Object.Name+": "+e.Message)
}

func (l *eventLog) Event(p *v1.Pod, e pod.Event) {
	l.list = append(l.list, string(e.Reason)+" "+p.Name+": "+e.Message)
}

// TestEachThingIsReportedOnce: what is wrong with a manifest, and what a pod asks for in vain.
func TestEachThingIsReportedOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m, l := New(testr.New(t), pod.SourceFile), &eventLog{}
		a := NewAnnouncer(m, l, func(p *v1.Pod) []string {
			if p.Name == "vain" {
				return []string{"spec.a", "spec.b"}
			}
			return nil
		}, testr.New(t))
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error, 1)
		go func() { done <- a.Run(ctx) }()
		report := func(r Report, want ...string) {
			t.Helper()
			m.Report(r)
			synctest.Wait()
			if !slices.Equal(l.list, want) {
				t.Errorf("reported %q, want %q", l.list, want)
			}
			l.list = nil
		}
		vain, web := claim(pod.SourceFile, "/m/vain", "vain", "1", 1), claim(pod.SourceFile, "/m/web", "web", "2", 1)
		bad := []pod.Problem{{Source: pod.SourceFile, Origin: "/m/bad", Message: "line 1: no"}}
		report(reportOf(pod.SourceFile, vain), "Unsupported vain: spec.a; spec.b")
		report(Report{Source: pod.SourceFile, Claims: []Claim{vain, web}, Problems: bad}, "InvalidManifest /m/bad: line 1: no")
		report(Report{Source: pod.SourceFile, Claims: []Claim{vain}, Problems: bad})
		report(reportOf(pod.SourceFile, web))
		report(Report{Source: pod.SourceFile, Claims: []Claim{vain}, Problems: bad}, "Unsupported vain: spec.a; spec.b", "InvalidManifest /m/bad: line 1: no")
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
}
