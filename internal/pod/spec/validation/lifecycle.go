package validation

import (
	"fmt"
	"slices"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

func (p podContainers) lifecycle(c *v1.Container, at *field.Path) field.ErrorList {
	l := c.Lifecycle
	if l == nil {
		return nil
	}
	errs := p.hook(l.PostStart, c.Ports, at.Child("postStart"))
	errs = append(errs, p.hook(l.PreStop, c.Ports, at.Child("preStop"))...)
	if l.StopSignal != nil {
		errs = append(errs, p.stopSignal(*l.StopSignal, at.Child("stopSignal"))...)
	}
	return errs
}

func (p podContainers) hook(h *v1.LifecycleHandler, ports []v1.ContainerPort, at *field.Path) field.ErrorList {
	if h == nil {
		return nil
	}
	list := handlers{at: at, kinds: "exec, httpGet, sleep"}
	if h.TCPSocket != nil {
		// The API accepts this field for the compatibility of old pods, and such a hook fails when it runs. An error
		// here is more helpful.
		list.errs = append(list.errs,
			field.Forbidden(at.Child("tcpSocket"), "isn't supported in hooks: use one of "+list.kinds))
	}
	if h.Exec != nil {
		list.add("exec", execAction(h.Exec, at.Child("exec")))
	}
	if h.HTTPGet != nil {
		list.add("httpGet", httpGet(h.HTTPGet, ports, at.Child("httpGet")))
	}
	if h.Sleep != nil {
		list.add("sleep", p.sleep(h.Sleep, at.Child("sleep", "seconds")))
	}
	return list.result()
}

// sleep checks the seconds of a sleep action. A sleep that is longer than the grace period would never end by itself
// (KEP-3960). 0 seconds are valid (KEP-4818).
func (p podContainers) sleep(a *v1.SleepAction, at *field.Path) field.ErrorList {
	grace := int64(v1.DefaultTerminationGracePeriodSeconds)
	if g := p.spec.TerminationGracePeriodSeconds; g != nil {
		grace = max(*g, 0)
	}
	if a.Seconds < 0 || a.Seconds > grace {
		return field.ErrorList{field.Invalid(at, a.Seconds,
			fmt.Sprintf("must be between 0 and the pod's terminationGracePeriodSeconds (%d), inclusive", grace))}
	}
	return nil
}

// stopSignal checks the stop signal. The valid signals depend on the operating system, so spec.os.name has to be set
// (KEP-4960).
func (p podContainers) stopSignal(s v1.Signal, at *field.Path) field.ErrorList {
	if p.spec.OS == nil || p.spec.OS.Name == "" {
		return field.ErrorList{field.Forbidden(at, "may only be set if spec.os.name is: set that to \"linux\"")}
	}
	if p.spec.OS.Name == v1.Windows {
		return OneOf(at, s, v1.SIGKILL, v1.SIGTERM)
	}
	named := namedSignals()
	if slices.Contains(named, s) || slices.Contains(realTimeSignals(), s) {
		return nil
	}
	errs := OneOf(at, s, named...)
	for _, e := range errs {
		e.Detail += fmt.Sprintf(", %q to %q, %q to %q", v1.SIGRTMINPLUS1, v1.SIGRTMINPLUS15, v1.SIGRTMAXMINUS14,
			v1.SIGRTMAXMINUS1)
	}
	return errs
}

// Signals returns all signals that may be the stop signal of a container on Linux.
func Signals() []v1.Signal { return append(namedSignals(), realTimeSignals()...) }

// namedSignals returns the signals of Linux that have their own name in the API.
func namedSignals() []v1.Signal {
	return []v1.Signal{
		v1.SIGABRT, v1.SIGALRM, v1.SIGBUS, v1.SIGCHLD, v1.SIGCLD, v1.SIGCONT, v1.SIGFPE, v1.SIGHUP,
		v1.SIGILL, v1.SIGINT, v1.SIGIO, v1.SIGIOT, v1.SIGKILL, v1.SIGPIPE, v1.SIGPOLL, v1.SIGPROF,
		v1.SIGPWR, v1.SIGQUIT, v1.SIGSEGV, v1.SIGSTKFLT, v1.SIGSTOP, v1.SIGSYS, v1.SIGTERM, v1.SIGTRAP,
		v1.SIGTSTP, v1.SIGTTIN, v1.SIGTTOU, v1.SIGURG, v1.SIGUSR1, v1.SIGUSR2, v1.SIGVTALRM, v1.SIGWINCH,
		v1.SIGXCPU, v1.SIGXFSZ, v1.SIGRTMIN, v1.SIGRTMAX,
	}
}

// realTimeSignals returns the real-time signals that the API names relative to the first or the last: SIGRTMIN+1,
// SIGRTMAX-1.
func realTimeSignals() []v1.Signal {
	var signals []v1.Signal
	for i := 1; i <= 15; i++ {
		signals = append(signals, v1.Signal(fmt.Sprintf("%s+%d", v1.SIGRTMIN, i)))
	}
	for i := 14; i >= 1; i-- {
		signals = append(signals, v1.Signal(fmt.Sprintf("%s-%d", v1.SIGRTMAX, i)))
	}
	return signals
}
