package agent

import (
	"path/filepath"
	"time"

	"k8s.io/kubelet/config/v1beta1"

	"github.com/deckhand-node/deckhand/internal/config/validation"
	"github.com/deckhand-node/deckhand/internal/logrotate"
	"github.com/deckhand-node/deckhand/internal/pod"
)

// newRotator makes what rotates the logs of running containers.
func (a *Agent) newRotator() *logrotate.Rotator {
	size, files, workers, interval := rotationLimits(&a.cfg.Kubelet)
	return logrotate.New(logrotate.Config{
		Root: filepath.Clean(a.cfg.Kubelet.PodLogsDir), MaxSize: size, MaxFiles: files, Interval: interval, Workers: workers,
	}, logged{everyPod{a}}, a.conn, a.log.WithName("logrotate"))
}

func rotationLimits(k *v1beta1.KubeletConfiguration) (maxSize int64, maxFiles, workers int, interval time.Duration) {
	maxSize, _ = validation.ContainerLogMaxBytes(k) // it has been validated
	return maxSize, int(*k.ContainerLogMaxFiles), int(*k.ContainerLogMaxWorkers), k.ContainerLogMonitorInterval.Duration
}

// logged lists the containers that write logs.
type logged struct{ everyPod }

func (l logged) Running() []logrotate.Container {
	var list []logrotate.Container
	for _, o := range l.All() {
		for i := range o.Containers {
			if c := &o.Containers[i]; c.State == pod.ContainerRunning && c.LogPath != "" {
				list = append(list, logrotate.Container{ID: c.ID, Pod: o.Namespace + "/" + o.Name, Name: c.Name, Path: c.LogPath})
			}
		}
	}
	return list
}
