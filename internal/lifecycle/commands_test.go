package lifecycle_test

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/kubelet/config/v1beta1"

	"github.com/deckhand-node/deckhand/internal/lifecycle"
	"github.com/deckhand-node/deckhand/internal/lifecycle/admission"
	"github.com/deckhand-node/deckhand/internal/pod"
)

// command makes one thing happen. Arguments are the words after its name.
type command func(s *sim, args []string) error

// newCommands are what the lines of a golden transcript that begin with "#! " may say.
func newCommands() map[string]command {
	return map[string]command{
		"see":   func(*sim, []string) error { return nil },
		"after": func(s *sim, a []string) error { return s.pass(arg(a, 0), 1) },
		"wake": func(s *sim, _ []string) error {
			if s.last.Wake.IsZero() {
				return fmt.Errorf("no wake-up was asked for")
			}
			s.now = s.last.Wake
			return nil
		},
		// ok KIND [NAME]: the first such action ends well.
		"ok": func(s *sim, a []string) error {
			return s.end(a, func(act pod.Action) { s.succeed(act) })
		},
		// fail KIND NAME REASON MESSAGE...; NAME "-" for an action without a container
		"fail": func(s *sim, a []string) error {
			return s.end(a, func(act pod.Action) { s.fail(act, arg(a, 2), strings.Join(a[3:], " ")) })
		},
		"fail-for-good": func(s *sim, a []string) error {
			return s.end(a, func(act pod.Action) {
				s.fail(act, arg(a, 2), strings.Join(a[3:], " "))
				s.results[len(s.results)-1].Failure.Permanent = true
			})
		},
		// fail-awaiting KIND NAME OBJECT-KIND/[NAMESPACE/]OBJECT REASON MESSAGE...; NAME "-" as for fail
		"fail-awaiting": func(s *sim, a []string) error {
			return s.end(a, func(act pod.Action) {
				s.fail(act, arg(a, 3), strings.Join(a[4:], " "))
				s.results[len(s.results)-1].Failure.Awaits = object(arg(a, 2))
			})
		},
		// fail-for-processes KIND NAME REASON MESSAGE...: no process could be created
		"fail-for-processes": func(s *sim, a []string) error {
			return s.end(a, func(act pod.Action) {
				if message := strings.Join(a[3:], " "); act.Kind == pod.StartContainer {
					s.startError(act, message)
				} else {
					s.fail(act, arg(a, 2), message)
				}
				s.results[len(s.results)-1].Failure.Wait = pod.WaitForProcesses
			})
		},
		// fail-until KIND NAME DURATION REASON MESSAGE...
		"fail-until": func(s *sim, a []string) error {
			wait, err := time.ParseDuration(arg(a, 2))
			if err != nil {
				return err
			}
			return s.end(a, func(act pod.Action) {
				s.fail(act, arg(a, 3), strings.Join(a[4:], " "))
				s.results[len(s.results)-1].Failure.NotBefore = s.now.Add(wait)
			})
		},
		// fail-mounted NAME DURATION IMAGE REASON MESSAGE...: an image that a container mounts can't be had
		"fail-mounted": func(s *sim, a []string) error {
			wait, err := time.ParseDuration(arg(a, 1))
			if err != nil {
				return err
			}
			return s.end([]string{string(pod.EnsureImage), arg(a, 0)}, func(act pod.Action) {
				s.fail(act, arg(a, 3), strings.Join(a[4:], " "))
				f := s.results[len(s.results)-1].Failure
				f.Image, f.NotBefore = arg(a, 2), s.now.Add(wait)
			})
		},
		// node cpu=1 label:zone=a strict-groups=true ...: so is the node by now
		"node": func(s *sim, a []string) error { return s.judge.change(a) },
		// beside NAME cpu=1 port=80 ...: another pod is admitted; ending NAME, gone NAME: it ends, it has ended
		"beside": func(s *sim, a []string) error { return s.judge.hold(arg(a, 0), a[1:]) },
		"ending": func(s *sim, a []string) error {
			s.judge.others[0].Ending = true
			return s.judge.only(arg(a, 0))
		},
		"gone": func(s *sim, a []string) error {
			err := s.judge.only(arg(a, 0))
			s.judge.others = nil
			return err
		},
		// judged: the pod is admitted or not, as the node is and what others hold
		"judged": func(s *sim, _ []string) error {
			return s.end([]string{string(pod.AdmitPod)}, func(act pod.Action) {
				if f := s.judge.admit(s.pod); f != nil {
					s.results = append(s.results, pod.Result{Action: act, At: s.now, Failure: f})
				} else {
					s.succeed(act)
				}
			})
		},
		"preempt": func(s *sim, _ []string) error {
			s.ending = admission.Preempted(s.now)
			return nil
		},
		"lost": func(s *sim, a []string) error {
			return s.end(a, func(act pod.Action) { s.lose(act) })
		},
		"cancelled": func(s *sim, a []string) error {
			return s.end(a, func(act pod.Action) {
				s.results = append(s.results, pod.Result{Action: act, At: s.now, Cancelled: true})
			})
		},
		// fail-start NAME MESSAGE...: the runtime leaves it as ended with 128.
		"fail-start": func(s *sim, a []string) error {
			act, err := s.take(pod.StartContainer, arg(a, 0))
			if err != nil {
				return err
			}
			c := s.byID(act.ID)
			s.exit(c, 128)
			c.Reason, c.DiskFull = "StartError", slices.Contains(a, "space")
			s.fail(act, "RunContainerError", strings.Join(a[1:], " "))
			return nil
		},
		"start-cut-off": func(s *sim, a []string) error {
			act, err := s.take(pod.StartContainer, arg(a, 0))
			if err != nil {
				return err
			}
			c := s.byID(act.ID)
			c.State, c.FinishedAt, c.ExitCode, c.Reason, c.Message = pod.ContainerExited, s.now, 128, "StartError", "failed to start: context canceled"
			c.StartAborted = true
			s.restartAgent()
			return nil
		},
		// runs-unheard NAME: it runs, and the answer to its start is still on its way.
		"runs-unheard": func(s *sim, a []string) error {
			c := s.byID(s.obs.Newest(arg(a, 0)).ID)
			c.State, c.StartedAt = pod.ContainerRunning, s.now
			return nil
		},
		"up": func(s *sim, _ []string) error { return s.bringUp() },
		// exit NAME CODE [REASON]
		"exit": func(s *sim, a []string) error {
			code, err := strconv.Atoi(arg(a, 1))
			if err != nil {
				return err
			}
			inst := s.obs.Newest(arg(a, 0))
			if err := s.exitNamed(arg(a, 0), int32(code)); err != nil {
				return err
			}
			if r := arg(a, 2); r != "" {
				s.byID(inst.ID).Reason = pod.Reason(r)
			}
			return nil
		},
		// probe NAME KIND ok|fail [MESSAGE...]
		"probe": func(s *sim, a []string) error {
			for _, p := range s.last.Probes {
				if p.Container == arg(a, 0) && string(p.Kind) == arg(a, 1) {
					s.probes[p] = pod.ProbeResult{Probe: p, OK: arg(a, 2) == "ok", At: s.now, Message: strings.Join(a[3:], " ")}
					return nil
				}
			}
			return fmt.Errorf("no such probe is wanted")
		},
		"clock-set-back": func(s *sim, a []string) error { return s.pass(arg(a, 0), -1) },
		// clock-steps DURATION: the clock is set by it, and the agent sees that
		"clock-steps": func(s *sim, a []string) error {
			by, err := time.ParseDuration(arg(a, 0))
			s.node.ClockSteps = append(slices.Clone(s.node.ClockSteps), pod.ClockStep{From: s.now, By: by})
			s.now = s.now.Add(by)
			s.laws.clockStepped(by)
			return err
		},
		"images-arrive":  func(s *sim, _ []string) error { s.node.ImagesAt = s.now; return nil },
		"objects-change": func(s *sim, _ []string) error { s.node.ObjectsAt = s.now; return nil },
		"room-appears":   func(s *sim, _ []string) error { s.node.ResourcesFreedAt = s.now; return nil },
		// keep-dead N [DURATION]: so many beside the newest, each for so long at least
		"keep-dead": func(s *sim, a []string) (err error) {
			s.node.ContainerGC = &lifecycle.ContainerGC{}
			if s.node.ContainerGC.PerContainer, err = strconv.Atoi(arg(a, 0)); err != nil || arg(a, 1) == "" {
				return err
			}
			s.node.ContainerGC.MinAge, err = time.ParseDuration(arg(a, 1))
			return err
		},
		// excess ID...: the node keeps them no longer
		"excess": func(s *sim, a []string) error { s.excess = a; return nil },
		"max-backoff": func(s *sim, a []string) (err error) {
			s.node.MaxBackoff, err = time.ParseDuration(arg(a, 0))
			return err
		},
		"first-backoff": func(s *sim, a []string) (err error) {
			s.node.FirstBackoff, err = time.ParseDuration(arg(a, 0))
			return err
		},
		"reboot": func(s *sim, _ []string) error {
			for _, b := range s.obs.Sandboxes {
				s.endSandbox(b.ID, 255)
			}
			s.restartAgent()
			return nil
		},
		"sandbox-dies":    func(s *sim, _ []string) error { s.obs.Sandboxes[0].State = pod.SandboxNotReady; return nil },
		"runtime-forgets": func(s *sim, _ []string) error { s.obs = pod.Observed{}; return nil },
		"runtime-loses": func(s *sim, a []string) error { // NAME: its shim died
			c := s.byID(s.obs.Newest(arg(a, 0)).ID)
			c.State, c.FinishedAt = pod.ContainerUnknown, s.now
			return nil
		},
		"vanish":         func(s *sim, a []string) error { s.vanish(arg(a, 0)); return nil }, // ID
		"made-elsewhere": func(s *sim, a []string) error { s.byID(s.obs.Newest(arg(a, 0)).ID).CreatedWith = nil; return nil },
		// end-together NAME CODE NAME CODE: both before the next decision
		"end-together": func(s *sim, a []string) error {
			if err := s.apply("exit " + arg(a, 0) + " " + arg(a, 1)); err != nil {
				return err
			}
			return s.apply("exit " + arg(a, 2) + " " + arg(a, 3))
		},
		"sandbox-turns-up": func(s *sim, _ []string) error {
			s.succeed(pod.Action{Kind: pod.CreateSandbox})
			s.results = s.results[:len(s.results)-1]
			return nil
		},
		"logs-on-disk": func(s *sim, a []string) error {
			n, err := strconv.Atoi(arg(a, 1))
			s.mem.Attempts = map[string]int{arg(a, 0): n}
			return err
		},
		// agent-restarts [NAME N]: with so many logs of a container that the runtime has no record of
		"agent-restarts": func(s *sim, a []string) (err error) {
			s.restartAgent()
			if name := arg(a, 0); name != "" {
				s.mem.Attempts = map[string]int{}
				s.mem.Attempts[name], err = strconv.Atoi(arg(a, 1))
			}
			return err
		},
		"orphan": func(s *sim, _ []string) error {
			s.restartAgent()
			s.pod, s.stop = nil, &lifecycle.Stop{At: s.now, Why: "nobody wants it"}
			return nil
		},
		// stop [GRACE]: again with another grace is another request to delete it.
		"stop": func(s *sim, a []string) error {
			s.stop = &lifecycle.Stop{At: s.now, Why: "its manifest is gone"}
			if s.object {
				s.stop.Why = "it was deleted"
			}
			return optional(&s.stop.Grace, arg(a, 0))
		},
		// object: the pod's object has to end in a terminal phase
		"object": func(s *sim, _ []string) error { s.object = true; return nil },
		// object-gone: the pod's source hasn't got it any more
		"object-gone": func(s *sim, _ []string) error { s.objectGone(); return nil },
		// evict REASON [GRACE [ANNOTATION=VALUE ...]]
		"evict": func(s *sim, a []string) error {
			s.ending = &pod.PodTermination{At: s.now, Reason: pod.Reason(arg(a, 0)), Message: "the node says so", Disruption: true}
			for _, text := range a[min(len(a), 2):] {
				key, value, _ := strings.Cut(text, "=")
				if s.ending.Annotations == nil {
					s.ending.Annotations = map[string]string{}
				}
				s.ending.Annotations[key] = value
			}
			return optional(&s.ending.Grace, arg(a, 1))
		},
		// shutdown PRIORITY=SECONDS ...: the node shuts down, and gives pods of these priorities so long
		"shutdown": func(s *sim, a []string) error {
			var periods []v1beta1.ShutdownGracePeriodByPodPriority
			for _, text := range a {
				var c v1beta1.ShutdownGracePeriodByPodPriority
				if _, err := fmt.Sscanf(text, "%d=%d", &c.Priority, &c.ShutdownGracePeriodSeconds); err != nil {
					return err
				}
				periods = append(periods, c)
			}
			s.ending = lifecycle.NodeShutdown(s.pod, s.now, periods)
			return nil
		},
		// evict-also REASON [GRACE]: another verdict comes
		"evict-also": func(s *sim, a []string) error {
			e := &pod.PodTermination{At: s.now, Reason: pod.Reason(arg(a, 0))}
			err := optional(&e.Grace, arg(a, 1))
			s.ending = lifecycle.Combine(s.ending, e)
			return err
		},
		// edit-image NAME IMAGE, edit-label NAME VALUE, edit-resources NAME request:cpu=1 limit:memory=64Mi ...
		"edit-image": func(s *sim, a []string) error {
			s.change(func(p *v1.Pod) { pod.ContainerNamed(p, arg(a, 0)).Image = arg(a, 1) })
			return nil
		},
		"edit-label": func(s *sim, a []string) error {
			s.change(func(p *v1.Pod) { p.Labels = map[string]string{arg(a, 0): arg(a, 1)} })
			return nil
		},
		"edit-resources": func(s *sim, a []string) (err error) {
			s.change(func(p *v1.Pod) {
				if name := arg(a, 0); name != "-" {
					err = setResources(&pod.ContainerNamed(p, name).Resources, a[1:])
					return
				}
				if p.Spec.Resources == nil {
					p.Spec.Resources = &v1.ResourceRequirements{}
				}
				err = setResources(p.Spec.Resources, a[1:])
			})
			return err
		},
		// debug IMAGE TARGET: an ephemeral container is added
		"debug": func(s *sim, a []string) error {
			s.change(func(p *v1.Pod) {
				p.Spec.EphemeralContainers = append(p.Spec.EphemeralContainers, v1.EphemeralContainer{
					EphemeralContainerCommon: v1.EphemeralContainerCommon{Name: "debug", Image: arg(a, 0)}, TargetContainerName: arg(a, 1)})
			})
			return nil
		},
		// overhead cpu=1 ...: the pod's RuntimeClass is defined, or edited, which makes no other generation
		"overhead": func(s *sim, a []string) error {
			var r v1.ResourceRequirements
			for i := range a {
				a[i] = "request:" + a[i]
			}
			err := setResources(&r, a)
			s.pod = s.pod.DeepCopy()
			s.pod.Spec.Overhead = r.Requests
			return err
		},
		// condition TYPE REASON: somebody sets it, as of an hour before the pod came here
		"condition": func(s *sim, a []string) error {
			s.pod = s.pod.DeepCopy()
			s.pod.Status.Conditions = append(s.pod.Status.Conditions, v1.PodCondition{Type: v1.PodConditionType(arg(a, 0)), Status: v1.ConditionTrue,
				Reason: arg(a, 1), LastTransitionTime: metav1.NewTime(epoch.Add(-time.Hour))})
			return nil
		},
		// echo: the source knows the status that was told last
		"echo": func(s *sim, _ []string) error { s.echo(); return nil },
		// object-fails REASON: somebody else fails the pod's object
		"object-fails": func(s *sim, a []string) error {
			s.echo()
			s.pod.Status.Phase, s.pod.Status.Reason = v1.PodFailed, arg(a, 0)
			return nil
		},
		// records-lost: a new agent finds an empty disk
		"records-lost": func(s *sim, _ []string) error { s.loseRecords(); return nil },
		// gate TYPE STATUS: somebody sets a condition of the pod
		"gate": func(s *sim, a []string) error {
			s.pod = s.pod.DeepCopy()
			s.pod.Status.Conditions = []v1.PodCondition{{Type: v1.PodConditionType(arg(a, 0)), Status: v1.ConditionStatus(arg(a, 1))}}
			return nil
		},
	}
}

func arg(a []string, i int) string {
	if i < len(a) {
		return a[i]
	}
	return ""
}

func (s *sim) pass(text string, sign time.Duration) error {
	d, err := time.ParseDuration(text)
	s.now = s.now.Add(sign * d)
	return err
}

func (s *sim) end(a []string, how func(pod.Action)) error {
	act, err := s.take(pod.ActionKind(arg(a, 0)), strings.TrimPrefix(arg(a, 1), "-"))
	if err == nil {
		how(act)
	}
	return err
}

func optional(to **time.Duration, text string) error {
	if text == "" {
		return nil
	}
	d, err := time.ParseDuration(text)
	*to = &d
	return err
}

func setResources(r *v1.ResourceRequirements, args []string) error {
	for _, a := range args {
		kind, rest, _ := strings.Cut(a, ":")
		name, value, _ := strings.Cut(rest, "=")
		q, err := resource.ParseQuantity(value)
		if err != nil {
			return fmt.Errorf("%s: %w", a, err)
		}
		list := &r.Requests
		if kind == "limit" {
			list = &r.Limits
		}
		if *list == nil {
			*list = v1.ResourceList{}
		}
		(*list)[v1.ResourceName(name)] = q
	}
	return nil
}

// apply makes one line of a transcript happen.
func (s *sim) apply(line string) error {
	f := strings.Fields(line)
	c := newCommands()[f[0]]
	if c == nil {
		return fmt.Errorf("unknown line")
	}
	return c(s, f[1:])
}

// object names an object as a command does.
func object(text string) pod.Object {
	kind, name, _ := strings.Cut(text, "/")
	if namespace, rest, ok := strings.Cut(name, "/"); ok {
		return pod.Object{Kind: kind, Namespace: namespace, Name: rest}
	}
	return pod.Object{Kind: kind, Name: name}
}
