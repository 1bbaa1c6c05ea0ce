package probe

import (
	"context"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	v1 "k8s.io/api/core/v1"

	"github.com/deckhand-node/deckhand/internal/pod"
	"github.com/deckhand-node/deckhand/internal/worker/handler"
)

// TestThresholds: each letter is a try (success, Failure, warning, unknown); below it is
// the result after it (- none, + ok, x failed).
func TestThresholds(t *testing.T) {
	for _, c := range []struct {
		name             string
		success, failure int32
		tries, results   string
	}{
		{"the first result needs its threshold too", 1, 3, "ffff", "--xx"},
		{"one success is enough", 1, 3, "sfffs", "+++x+"},
		{"failures have to follow each other", 1, 3, "sffsffs", "+++++++"},
		{"two successes", 2, 1, "sfssfs", "-xx+xx"},
		{"unknown counts neither way, nor breaks a row", 2, 2, "ususufuuf", "---+++++x"},
		{"warning counts as success", 2, 2, "wsffw", "-++xx"},
		{"thresholds of 0 count as 1", 0, 0, "fsf", "x+x"},
	} {
		t.Run(c.name, func(t *testing.T) {
			withRig(t, Options{}, func(r *rig) {
				r.answers(func(_ context.Context, x try) handler.Outcome {
					return handler.Outcome{State: map[byte]handler.State{'s': handler.Success, 'f': handler.Failure, 'w': handler.Warning, 'u': handler.Unknown}[c.tries[x.n-1]], Message: "why"}
				})
				spec := httpProbe(1)
				spec.SuccessThreshold, spec.FailureThreshold = c.success, c.failure
				r.Want("u", podOf("u", v1.Container{ReadinessProbe: spec}), ran("id1", time.Now()), "", []pod.Probe{readiness1})
				var got strings.Builder
				changes := 0
				for i := range c.tries {
					r.until(time.Duration(i) * second)
					switch res := r.Results("u"); {
					case len(res) == 0:
						got.WriteByte('-')
					case res[0].OK:
						got.WriteByte('+')
					default:
						got.WriteByte('x')
						if res[0].Message != "why" {
							t.Errorf("the message is %q", res[0].Message)
						}
					}
					if s := got.String(); i == 0 && s != "-" || i > 0 && s[i] != s[i-1] {
						changes++
						if at := r.wakes[len(r.wakes)-1]; at != time.Duration(i)*second {
							t.Errorf("after try %d the pod was woken last at %v", i, at)
						}
						if at := r.Results("u")[0].At; !at.Equal(r.start.Add(time.Duration(i) * second)) {
							t.Errorf("the result of try %d is of %v", i, at)
						}
					}
				}
				if got.String() != c.results {
					t.Errorf("got  %s\nwant %s", got.String(), c.results)
				}
				if len(r.wakes) != changes {
					t.Errorf("woken %d times for %d changes", len(r.wakes), changes)
				}
			})
		})
	}
}

// TestFailuresAreCounted: every failure since the last success counts, and the newest says how, before and after the
// threshold; no pod is woken for that.
func TestFailuresAreCounted(t *testing.T) {
	withRig(t, Options{}, func(r *rig) {
		const tries = "fsffffus"
		r.answers(func(_ context.Context, x try) handler.Outcome {
			return handler.Outcome{State: map[byte]handler.State{'s': handler.Success, 'f': handler.Failure, 'u': handler.Unknown}[tries[x.n-1]], Message: fmt.Sprint("try ", x.n)}
		})
		spec := httpProbe(1)
		spec.FailureThreshold = 2
		r.Want("u", podOf("u", v1.Container{ReadinessProbe: spec}), ran("id1", time.Now()), "", []pod.Probe{readiness1})
		for i, want := range []int{1, 0, 1, 2, 3, 4, 4, 0} {
			r.until(time.Duration(i) * second)
			got := r.Failures("u")
			switch {
			case want == 0:
				if len(got) != 0 {
					t.Errorf("after try %d: %+v", i+1, got)
				}
			case len(got) != 1 || got[0].Count != want || got[0].Probe != readiness1:
				t.Errorf("after try %d: %+v, want %d failures", i+1, got, want)
			case i > 2 && (got[0].Message != fmt.Sprint("try ", min(i+1, 6)) || !got[0].Since.Equal(r.start.Add(2*second)) || !got[0].Last.Equal(r.start.Add(time.Duration(min(i, 5))*second))):
				t.Errorf("after try %d: %+v", i+1, got)
			}
		}
		if len(r.wakes) != 3 { // ready, not ready, ready
			t.Errorf("woken %d times", len(r.wakes))
		}
		r.Forget("u")
		if got := r.Failures("u"); got != nil {
			t.Errorf("of a pod that is over: %+v", got)
		}
	})
}

// TestResultsAreSnapshots: a slice that somebody holds doesn't change under them.
func TestResultsAreSnapshots(t *testing.T) {
	withRig(t, Options{}, func(r *rig) {
		r.answers(func(_ context.Context, x try) handler.Outcome {
			return handler.Outcome{State: []handler.State{handler.Success, handler.Failure}[x.n%2]}
		})
		r.Want("u", podOf("u", v1.Container{ReadinessProbe: httpProbe(1)}), ran("id1", time.Now()), "", []pod.Probe{readiness1})
		r.until(0)
		before := r.Results("u")
		if before[0].OK {
			t.Fatal("the first try fails, yet it is ok")
		}
		r.until(second)
		if before[0].OK || !r.Results("u")[0].OK {
			t.Errorf("held %v, now %v", before, r.Results("u"))
		}
	})
}

// TestHoldAfterFailure: the core kills the container; until then there is nothing to
// learn, and nothing to tell again and again. Readiness goes on.
func TestHoldAfterFailure(t *testing.T) {
	for _, key := range []pod.Probe{startup1, liveness1} {
		t.Run(string(key.Kind), func(t *testing.T) {
			withRig(t, Options{}, func(r *rig) {
				r.answers(func(context.Context, try) handler.Outcome { return handler.Outcome{State: handler.Failure} })
				spec := httpProbe(1)
				spec.FailureThreshold = 2
				p := podOf("u", v1.Container{StartupProbe: spec, LivenessProbe: spec.DeepCopy(), ReadinessProbe: httpProbe(1)})
				o := ran("id1", time.Now())
				r.Want("u", p, o, "", []pod.Probe{key, readiness1})
				r.until(10 * second)
				r.wantTimes(key, 0, second)
				if got := r.times(readiness1); len(got) != 11 {
					t.Errorf("readiness was tried at %v", got)
				}
				r.Want("u", p, o, "", []pod.Probe{key}) // the others change, this one stays
				r.until(20 * second)
				r.wantTimes(key, 0, second)
				if ok, known := r.okays("u")[key.Kind]; ok || !known {
					t.Errorf("results: %v", r.Results("u"))
				}
				r.Want("u", p, o, "", nil)
				if r.Results("u") != nil {
					t.Errorf("results: %v", r.Results("u"))
				}
				r.Want("u", p, o, "", []pod.Probe{key})
				r.until(30 * second)
				r.wantTimes(key, 0, second, 20*second, 21*second)
			})
		})
	}
}

func TestStartupIsDoneAfterSuccess(t *testing.T) {
	withRig(t, Options{}, func(r *rig) {
		r.answers(func(_ context.Context, x try) handler.Outcome {
			if x.n < 3 {
				return handler.Outcome{State: handler.Failure}
			}
			return handler.Outcome{State: handler.Success}
		})
		spec := httpProbe(1)
		spec.FailureThreshold = 5
		r.Want("u", podOf("u", v1.Container{StartupProbe: spec}), ran("id1", time.Now()), "", []pod.Probe{startup1})
		r.until(10 * second)
		r.wantTimes(startup1, 0, second, 2*second)
		if !r.okays("u")[pod.ProbeStartup] {
			t.Errorf("results: %v", r.Results("u"))
		}
	})
}

// TestReplacedContainer: what the old instance came to says nothing of the new one.
func TestReplacedContainer(t *testing.T) {
	withRig(t, Options{}, func(r *rig) {
		p := podOf("u", v1.Container{ReadinessProbe: httpProbe(1)})
		r.Want("u", p, ran("id1", time.Now()), "", []pod.Probe{readiness1})
		r.until(5 * second)
		readiness2 := probeOf("id2", pod.ProbeReadiness)
		r.answers(func(context.Context, try) handler.Outcome { return handler.Outcome{State: handler.Unknown} })
		r.Want("u", p, ran("id2", time.Now()), "", []pod.Probe{readiness2})
		if got := r.Results("u"); got != nil {
			t.Errorf("results: %v", got)
		}
		r.answers(nil)
		r.until(6 * second)
		r.wantTimes(readiness1, 0, second, 2*second, 3*second, 4*second, 5*second)
		r.wantTimes(readiness2, 5*second, 6*second)
		if got := r.Results("u"); len(got) != 1 || got[0].ID != "id2" {
			t.Errorf("results: %v", got)
		}
	})
}

// TestChangedPodGoesOn: new labels, or another address, don't restart the count.
func TestChangedPodGoesOn(t *testing.T) {
	withRig(t, Options{}, func(r *rig) {
		r.answers(func(context.Context, try) handler.Outcome { return handler.Outcome{State: handler.Failure} })
		spec := httpProbe(1)
		spec.FailureThreshold = 3
		p := podOf("u", v1.Container{ReadinessProbe: spec})
		o := ran("id1", time.Now())
		r.Want("u", p, o, "10.0.0.1", []pod.Probe{readiness1})
		r.until(1500 * time.Millisecond)
		changed := p.DeepCopy()
		r.Want("u", changed, o, "10.0.0.2", []pod.Probe{readiness1})
		r.until(2 * second)
		r.wantTimes(readiness1, 0, second, 2*second)
		if len(r.Results("u")) != 1 {
			t.Error("the third failure brought no result")
		}
		last := r.tries[2]
		if last.Pod != changed || last.Container != &changed.Spec.Containers[0] || last.PodIP != "10.0.0.2" || r.tries[1].PodIP != "10.0.0.1" {
			t.Errorf("the last try was for %+v", last.Target)
		}
	})
}

func TestEvents(t *testing.T) {
	title := map[pod.ProbeKind]string{pod.ProbeStartup: "Startup", pod.ProbeLiveness: "Liveness", pod.ProbeReadiness: "Readiness"}
	for _, key := range []pod.Probe{startup1, liveness1, readiness1} {
		for state, want := range map[handler.State]*pod.Event{
			handler.Success: nil,
			handler.Failure: {Reason: "Unhealthy", Message: title[key.Kind] + " probe failed: so it is"},
			handler.Unknown: {Reason: "Unhealthy", Message: title[key.Kind] + " probe errored and resulted in unknown state: so it is"},
			handler.Warning: {Reason: "ProbeWarning", Message: title[key.Kind] + " probe warning: so it is"},
		} {
			t.Run(fmt.Sprint(key.Kind, state), func(t *testing.T) {
				withRig(t, Options{}, func(r *rig) {
					r.answers(func(context.Context, try) handler.Outcome {
						time.Sleep(5 * time.Millisecond)
						return handler.Outcome{State: state, Message: "so it is"}
					})
					p := podOf("u", v1.Container{StartupProbe: httpProbe(10), LivenessProbe: httpProbe(10), ReadinessProbe: httpProbe(10)})
					r.Want("u", p, ran("id1", time.Now()), "", []pod.Probe{key})
					r.until(second)
					var events []pod.Event
					if want != nil {
						want.Type, want.Container = "Warning", "c"
						events = append(events, *want)
					}
					if !slices.EqualFunc(r.events, events, func(a, b pod.Event) bool { return reflect.DeepEqual(a, b) }) {
						t.Errorf("got %v, want %v", r.events, events)
					}
					name := map[handler.State]string{handler.Success: "success", handler.Failure: "failure", handler.Warning: "warning", handler.Unknown: "unknown"}[state]
					if want := []string{"c " + string(key.Kind) + " " + name + " 5ms"}; !slices.Equal(r.meter, want) {
						t.Errorf("metered %v, want %v", r.meter, want)
					}
				})
			})
		}
	}
}

// The event alone has what the container printed, which may be a secret.
func TestOutputIsInTheEventAlone(t *testing.T) {
	withRig(t, Options{}, func(r *rig) {
		output := "a secret " + strings.Repeat("ü", 5000)
		r.answers(func(context.Context, try) handler.Outcome {
			return handler.Outcome{State: handler.Failure, Message: "command exited with 1", Output: output}
		})
		r.Want("u", podOf("u", v1.Container{ReadinessProbe: httpProbe(10)}), ran("id1", time.Now()), "", []pod.Probe{readiness1})
		r.until(0)
		if got, want := r.events[0].Message, "Readiness probe failed: "+output; got != want {
			t.Errorf("the event says %q", got)
		}
		if got := r.Results("u")[0].Message; got != "command exited with 1" {
			t.Errorf("the result says %q", got)
		}
	})
}

func TestMessagesAreBounded(t *testing.T) {
	withRig(t, Options{}, func(r *rig) {
		r.answers(func(context.Context, try) handler.Outcome {
			return handler.Outcome{State: handler.Failure, Message: "\xff" + strings.Repeat("ü", 3000)}
		})
		r.Want("u", podOf("u", v1.Container{ReadinessProbe: httpProbe(10)}), ran("id1", time.Now()), "", []pod.Probe{readiness1})
		r.until(0)
		if text := r.Results("u")[0].Message; len(text) > maxMessage || len(text) < maxMessage-8 || !utf8.ValidString(text) || !strings.HasSuffix(text, "ü...") || !strings.Contains(text, "?ü") {
			t.Errorf("%d bytes: %q", len(text), text)
		}
	})
}
