package volumes

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"golang.org/x/sys/unix"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/deckhand-node/deckhand/bench/report"
	"github.com/deckhand-node/deckhand/internal/volume"
	"github.com/deckhand-node/deckhand/internal/volume/configmap"
	"github.com/deckhand-node/deckhand/internal/volume/secret"
	"github.com/deckhand-node/deckhand/internal/volume/teardown"
)

// files is what each measured volume holds.
var files = map[string]string{"app.conf": "listen = 8080\n", "greeting": "ahoy\n", "colours": "blue\nyellow\n"}

// cost is what something took.
type cost struct{ time, cpu time.Duration }

// pair is what a volume cost, once for each round.
type pair struct{ floor, deckhand []cost }

// medians are those of time and CPU time.
func medians(list []cost) cost {
	var times, cpus []time.Duration
	for _, c := range list {
		times, cpus = append(times, c.time), append(cpus, c.cpu)
	}
	return cost{report.Median(times), report.Median(cpus)}
}

// singles makes and removes volumes one by one, by bare system calls and by the plugin, in turns.
func (o Options) singles(ctx context.Context, into map[string]*pair) (err error) {
	dir, err := os.MkdirTemp("", "deckhand-volumes-")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	data := map[string][]byte{}
	for name, text := range files {
		data[name] = []byte(text)
	}
	objects := objects{&v1.ConfigMap{Data: files}, &v1.Secret{Data: data}}
	for name, k := range map[string]struct {
		memory bool
		plugin volume.Plugin
		volume v1.VolumeSource
	}{
		"ConfigMap":        {false, configmap.New(objects), v1.VolumeSource{ConfigMap: &v1.ConfigMapVolumeSource{LocalObjectReference: v1.LocalObjectReference{Name: "a"}}}},
		"Secret, in tmpfs": {true, secret.New(objects), v1.VolumeSource{Secret: &v1.SecretVolumeSource{SecretName: "a"}}},
	} {
		p := into[name]
		if p == nil {
			p = &pair{}
			into[name] = p
		}
		floor, err := o.each(dir, func(parent, name string) error { return bare(parent, name, k.memory) })
		if err != nil {
			return fmt.Errorf("%s, floor: %w", name, err)
		}
		took, err := o.each(dir, func(parent, name string) error {
			r := volume.Request{
				Pod:   &v1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "a", UID: types.UID(name)}},
				Spec:  volume.Spec{Volume: &v1.Volume{Name: name, VolumeSource: k.volume}},
				Place: volume.Place{UID: types.UID(name), Dir: filepath.Join(parent, name), Meta: filepath.Join(parent, "meta", name)},
			}
			if _, err := k.plugin.Mount(ctx, r); err != nil {
				return err
			}
			return teardown.Remove(ctx, parent, name)
		})
		if err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
		p.floor, p.deckhand = append(p.floor, floor), append(p.deckhand, took)
	}
	return nil
}

// each does something for each of the volumes, and returns what one of them cost.
func (o Options) each(dir string, do func(parent, name string) error) (cost, error) {
	before, err := cpu()
	if err != nil {
		return cost{}, err
	}
	began := time.Now()
	for i := range o.Single {
		if err := do(dir, fmt.Sprintf("volume-%d", i)); err != nil {
			return cost{}, err
		}
	}
	took := time.Since(began)
	after, err := cpu()
	n := time.Duration(o.Single)
	return cost{took / n, (after - before) / n}, err
}

// cpu is the CPU time that this process has used.
func cpu() (time.Duration, error) {
	var u unix.Rusage
	if err := unix.Getrusage(unix.RUSAGE_SELF, &u); err != nil {
		return 0, err
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano()), nil
}

// bare makes and removes a volume as plainly as the layout allows: a folder with the files, a link to it that
// is renamed into place, a link for each file; before that a tmpfs, if it is to be in memory.
func bare(parent, name string, memory bool) error {
	dir := filepath.Join(parent, name)
	if err := unix.Mkdir(dir, 0o777); err != nil {
		return err
	}
	if memory {
		if err := unix.Mount("tmpfs", dir, "tmpfs", 0, "size=1m"); err != nil {
			return err
		}
	}
	if err := fill(dir); err != nil {
		return err
	}
	if memory {
		if err := unix.Unmount(dir, 0); err != nil {
			return err
		}
	}
	return os.RemoveAll(dir)
}

func fill(dir string) error {
	const generation, data, temp = "..2026_01_02_15_04_05.123456789", "..data", "..data_tmp"
	if err := unix.Mkdir(filepath.Join(dir, generation), 0o755); err != nil {
		return err
	}
	for name, text := range files {
		if err := os.WriteFile(filepath.Join(dir, generation, name), []byte(text), 0o644); err != nil {
			return err
		}
	}
	if err := unix.Symlink(generation, filepath.Join(dir, temp)); err != nil {
		return err
	}
	if err := unix.Rename(filepath.Join(dir, temp), filepath.Join(dir, data)); err != nil {
		return err
	}
	for name := range files {
		if err := unix.Symlink(filepath.Join(data, name), filepath.Join(dir, name)); err != nil {
			return err
		}
	}
	return nil
}

// objects are one ConfigMap and one Secret of any name.
type objects struct {
	config *v1.ConfigMap
	secret *v1.Secret
}

// ConfigMap returns it.
func (o objects) ConfigMap(context.Context, string, string) (*v1.ConfigMap, error) {
	return o.config, nil
}

// Secret returns it.
func (o objects) Secret(context.Context, string, string) (*v1.Secret, error) { return o.secret, nil }
