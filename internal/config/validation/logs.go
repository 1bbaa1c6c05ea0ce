package validation

import (
	"errors"
	"math"
	"path"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/api/resource"
	utilvalidation "k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
	logsapi "k8s.io/component-base/logs/api/v1"
	"k8s.io/kubelet/config/v1beta1"

	"github.com/deckhand-node/deckhand/internal/kit/logging"
)

// Log formats (KubeletConfiguration.logging.format).
const (
	logFormatText = "text"
	logFormatJSON = "json"
)

// Gates of options of the agent's own log.
const (
	loggingAlphaOptions = "LoggingAlphaOptions"
	loggingBetaOptions  = "LoggingBetaOptions"
)

// minLogMonitorInterval is the minimum of containerLogMonitorInterval, the same as the kubelet's.
const minLogMonitorInterval = 3 * time.Second

// containerLogs checks the directory and the rotation of container logs.
func (k *check) containerLogs() {
	k.logsDir(at("podLogsDir"), k.PodLogsDir)
	if _, err := ContainerLogMaxBytes(k.KubeletConfiguration); err != nil {
		k.invalid(at("containerLogMaxSize"), k.ContainerLogMaxSize, err.Error())
	}
	atLeast(k, "containerLogMaxFiles", *k.ContainerLogMaxFiles, 2,
		"must be 2 or more: the one that is written, and one rotated")
	atLeast(k, "containerLogMaxWorkers", *k.ContainerLogMaxWorkers, 1, "must be 1 or more")
	if d := k.ContainerLogMonitorInterval.Duration; d < minLogMonitorInterval {
		k.invalid(at("containerLogMonitorInterval"), d.String(), "must be at least "+minLogMonitorInterval.String())
	}
}

// logsDir checks podLogsDir by the rules of KubeletConfiguration: an absolute, normalized path of visible ASCII
// characters, because the runtime and log shippers have to agree on it.
func (k *check) logsDir(at *field.Path, dir string) {
	if !path.IsAbs(dir) || path.Clean(dir) != strings.TrimSuffix(dir, "/") {
		k.invalid(at, dir, `must be an absolute, normalised directory such as "/var/log/pods"`)
		return
	}
	for part := range strings.SplitSeq(strings.Trim(dir, "/"), "/") {
		if len(part) > utilvalidation.DNS1123SubdomainMaxLength ||
			strings.ContainsFunc(part, func(r rune) bool { return r < ' ' || r > '~' }) {
			k.invalid(at, dir, "must be of visible ASCII letters only")
			return
		}
	}
}

// ContainerLogMaxBytes returns containerLogMaxSize in bytes; -1 for no limit.
func ContainerLogMaxBytes(c *v1beta1.KubeletConfiguration) (int64, error) {
	q, err := parseQuantity(c.ContainerLogMaxSize)
	if err != nil || q.IsZero() || q.Cmp(*resource.NewQuantity(q.Value(), q.Format)) != 0 {
		return 0, errors.New(`must be a size such as "10Mi", or negative for no limit`)
	}
	return max(q.Value(), -1), nil
}

// logging checks the agent's own log. (logsapi.Validate needs a global registry of formats.)
func (k *check) logging() {
	path, l := at("logging"), &k.Logging
	oneOf(k, path.Child("format"), l.Format, logFormatText, logFormatJSON)
	if l.Format == logFormatJSON {
		k.needsGate(path.Child("format"), loggingBetaOptions)
	}
	k.positive(path.Child("flushFrequency"), l.FlushFrequency.Duration.Duration)
	k.verbosity(path.Child("verbosity"), l.Verbosity)
	k.vmodule(path.Child("vmodule"))
	k.buffer(path.Child("options", logFormatText, "infoBufferSize"), &l.Options.Text.InfoBufferSize)
	k.buffer(path.Child("options", logFormatJSON, "infoBufferSize"), &l.Options.JSON.InfoBufferSize)
}

func (k *check) buffer(path *field.Path, size *resource.QuantityValue) {
	switch {
	case size.Sign() < 0:
		k.invalid(path, field.OmitValueType{}, "must be 0 (unbuffered) or more")
	case size.Sign() > 0:
		k.needsGate(path, loggingAlphaOptions)
	}
}

func (k *check) verbosity(path *field.Path, v logsapi.VerbosityLevel) {
	if v > math.MaxInt32 {
		k.invalid(path, v, "must be from 0 to 2147483647")
	}
}

func (k *check) vmodule(path *field.Path) {
	if len(k.Logging.VModule) > 0 && k.Logging.Format == logFormatJSON {
		k.forbidden(path, "counts only with logging.format text")
	}
	for i, m := range k.Logging.VModule {
		if strings.ContainsAny(m.FilePattern, "=,") || logging.CheckVModule(m.FilePattern+"=0") != nil {
			k.invalid(path.Index(i).Child("filePattern"), m.FilePattern,
				`must be the name of a source file without ".go", or a pattern such as "image*", without = and ,`)
		}
		k.verbosity(path.Index(i).Child("verbosity"), m.Verbosity)
	}
}
