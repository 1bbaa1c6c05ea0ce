package agent

import (
	"path/filepath"

	"github.com/deckhand-node/deckhand/internal/config/kubeletconfig"
	"github.com/deckhand-node/deckhand/internal/logrotate"
	"github.com/deckhand-node/deckhand/internal/pod"
)

// newRotator makes what rotates the logs of running containers.
func (a *Agent) newRotator() (*logrotate.Rotator, error) {
	k := &a.cfg.Kubelet
	size, err := kubeletconfig.ContainerLogMaxBytes(k)
	if err != nil {
		return nil, err
	}
	return logrotate.New(logrotate.Config{
		Root: filepath.Clean(k.PodLogsDir), MaxSize: size, MaxFiles: int(*k.ContainerLogMaxFiles),
		Interval: k.ContainerLogMonitorInterval.Duration, Workers: int(*k.ContainerLogMaxWorkers),
	}, logged{everyPod{a}}, a.conn, a.log.WithName("logrotate")), nil
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
