package container

import (
	"fmt"
	"slices"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/deckhand-node/deckhand/internal/podspec/rule"
)

func (p Pod) lifecycle(l *v1.Lifecycle, at *field.Path) field.ErrorList {
	if l == nil {
		return nil
	}
	errs := p.hook(l.PostStart, at.Child("postStart"))
	errs = append(errs, p.hook(l.PreStop, at.Child("preStop"))...)
	if l.StopSignal != nil {
		errs = append(errs, p.stopSignal(*l.StopSignal, at.Child("stopSignal"))...)
	}
	return errs
}

func (p Pod) hook(h *v1.LifecycleHandler, at *field.Path) field.ErrorList {
	if h == nil {
		return nil
	}
	list := handlers{at: at}
	if h.Exec != nil {
		list.take("exec", execAction(h.Exec, at.Child("exec")))
	}
	if h.HTTPGet != nil {
		list.take("httpGet", httpGet(h.HTTPGet, at.Child("httpGet")))
	}
	if h.TCPSocket != nil {
		// The API keeps this field for old pods' sake; such a hook fails when it runs.
		list.take("tcpSocket", rule.PortOrName(at.Child("tcpSocket", "port"), h.TCPSocket.Port))
	}
	if h.Sleep != nil {
		list.take("sleep", p.sleep(h.Sleep, at.Child("sleep", "seconds")))
	}
	return list.result()
}

// sleep longer than the grace period would never end by itself.
func (p Pod) sleep(a *v1.SleepAction, at *field.Path) field.ErrorList {
	grace := int64(v1.DefaultTerminationGracePeriodSeconds)
	if g := p.Spec.TerminationGracePeriodSeconds; g != nil {
		grace = *g
	}
	if a.Seconds < 0 || a.Seconds > grace {
		return field.ErrorList{field.Invalid(at, a.Seconds, fmt.Sprintf("must be non-negative and not more than terminationGracePeriodSeconds (%d)", grace))}
	}
	return nil
}

// stopSignal depends on the operating system, which must therefore be named (KEP-4960).
func (p Pod) stopSignal(s v1.Signal, at *field.Path) field.ErrorList {
	if p.Spec.OS == nil || p.Spec.OS.Name == "" {
		return field.ErrorList{field.Forbidden(at, "may not be set for containers with empty `spec.os.name`")}
	}
	if p.Spec.OS.Name == v1.Windows {
		return rule.OneOf(at, s, v1.SIGKILL, v1.SIGTERM)
	}
	if !slices.Contains(linuxSignals(), s) {
		return field.ErrorList{field.NotSupported(at, s, linuxSignals())}
	}
	return nil
}

// linuxSignals are the names the API has for Linux' signals.
func linuxSignals() []v1.Signal {
	signals := []v1.Signal{
		v1.SIGABRT, v1.SIGALRM, v1.SIGBUS, v1.SIGCHLD, v1.SIGCLD, v1.SIGCONT, v1.SIGFPE, v1.SIGHUP,
		v1.SIGILL, v1.SIGINT, v1.SIGIO, v1.SIGIOT, v1.SIGKILL, v1.SIGPIPE, v1.SIGPOLL, v1.SIGPROF,
		v1.SIGPWR, v1.SIGQUIT, v1.SIGSEGV, v1.SIGSTKFLT, v1.SIGSTOP, v1.SIGSYS, v1.SIGTERM, v1.SIGTRAP,
		v1.SIGTSTP, v1.SIGTTIN, v1.SIGTTOU, v1.SIGURG, v1.SIGUSR1, v1.SIGUSR2, v1.SIGVTALRM, v1.SIGWINCH,
		v1.SIGXCPU, v1.SIGXFSZ, v1.SIGRTMIN, v1.SIGRTMAX,
	}
	for i := 1; i <= 15; i++ {
		signals = append(signals, v1.Signal(fmt.Sprintf("%s+%d", v1.SIGRTMIN, i)))
	}
	for i := 14; i >= 1; i-- {
		signals = append(signals, v1.Signal(fmt.Sprintf("%s-%d", v1.SIGRTMAX, i)))
	}
	return signals
}
