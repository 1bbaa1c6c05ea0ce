package logging_test

import (
	"github.com/go-logr/logr"
	"k8s.io/klog/v2"
)

// logElsewhere logs from a file of another name than the tests.
func logElsewhere(l logr.Logger, msg string) { l.V(4).Info(msg) }

// logForCaller logs on behalf of who calls it.
func logForCaller(l logr.Logger, msg string) { l.WithCallDepth(1).V(4).Info(msg) }

func klogElsewhere(msg string) { klog.V(4).InfoS(msg) }
