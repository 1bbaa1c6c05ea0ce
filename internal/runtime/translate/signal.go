package translate

import (
	"strings"

	v1 "k8s.io/api/core/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// The API and the CRI use the same names of signals, except for real-time signals: SIGRTMIN+1 in the API is
// SIGRTMINPLUS1 in the CRI.

// stopSignal returns the first signal that StopContainer sends.
func stopSignal(c *v1.Container) runtimeapi.Signal {
	if c.Lifecycle == nil || c.Lifecycle.StopSignal == nil {
		return runtimeapi.Signal_RUNTIME_DEFAULT
	}
	name := string(*c.Lifecycle.StopSignal)
	name = strings.Replace(name, "+", "PLUS", 1)
	name = strings.Replace(name, "-", "MINUS", 1)
	return runtimeapi.Signal(runtimeapi.Signal_value[name])
}

// apiSignal returns the API's name of a signal; empty if the runtime doesn't report one.
func apiSignal(s runtimeapi.Signal) v1.Signal {
	if s == runtimeapi.Signal_RUNTIME_DEFAULT {
		return ""
	}
	name := runtimeapi.Signal_name[int32(s)]
	if !strings.HasPrefix(name, "SIGRT") {
		return v1.Signal(name)
	}
	name = strings.Replace(name, "PLUS", "+", 1)
	return v1.Signal(strings.Replace(name, "MINUS", "-", 1))
}
