package volumes

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/moby/sys/mountinfo"
	"golang.org/x/sys/unix"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/deckhand-node/deckhand/bench/report"
	"github.com/deckhand-node/deckhand/internal/pod/object"
	"github.com/deckhand-node/deckhand/internal/volume"
	"github.com/deckhand-node/deckhand/internal/volume/objectfiles"
	"github.com/deckhand-node/deckhand/internal/volume/teardown"
)

// files is what each measured volume holds.
var files = map[string]string{"app.conf": "listen = 8080\n", "greeting": "ahoy\n", "colours": "blue\nyellow\n"}

// cost is what something took.
type cost struct{ time, cpu time.Duration }

// pair is what a volume cost by bare system calls and by its plugin, once for each round.
type pair struct{ floor, deckhand []cost }

func (p *pair) add(floor, deckhand cost) {
	p.floor, p.deckhand = append(p.floor, floor), append(p.deckhand, deckhand)
}

// medians are those of time and CPU time.
func medians(list []cost) cost {
	var times, cpus []time.Duration
	for _, c := range list {
		times, cpus = append(times, c.time), append(cpus, c.cpu)
	}
	return cost{report.Median(times), report.Median(cpus)}
}

// kind is a kind of volume that is made one by one.
type kind struct {
	name   string
	memory bool
	plugin volume.Plugin
	source v1.VolumeSource
	from   object.View
}

func kinds() []kind {
	data := map[string][]byte{}
	for name, text := range files {
		data[name] = []byte(text)
	}
	from := objects{config: &v1.ConfigMap{Data: files}, secret: &v1.Secret{Data: data}}
	return []kind{
		{configMapKind, false, objectfiles.NewConfigMap(), v1.VolumeSource{ConfigMap: &v1.ConfigMapVolumeSource{LocalObjectReference: v1.LocalObjectReference{Name: "a"}}}, from},
		{"Secret (tmpfs)", true, objectfiles.NewSecret(), v1.VolumeSource{Secret: &v1.SecretVolumeSource{SecretName: "a"}}, from},
	}
}

const (
	configMapKind = "ConfigMap"
	made, removed = ", made", ", removed"
)

// singles makes volumes one by one and removes them, by bare system calls and by the plugin, in turns.
func (o Options) singles(ctx context.Context, into map[string]*pair) (err error) {
	dir, err := os.MkdirTemp("", "deckhand-volumes-")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, sweep(dir)) }()
	for _, k := range kinds() {
		var costs [4]cost
		for i, do := range []func(name string) error{
			func(name string) error { return bare(filepath.Join(dir, name), k.memory) },
			func(name string) error { return bareRemove(filepath.Join(dir, name), k.memory) },
			func(name string) error { _, err := k.plugin.Mount(ctx, k.request(dir, name)); return err },
			func(name string) error { return teardown.Remove(ctx, dir, name) },
		} {
			if costs[i], err = o.each(do); err != nil {
				return fmt.Errorf("%s: %w", k.name, err)
			}
		}
		for what, i := range map[string]int{made: 0, removed: 1} {
			if into[k.name+what] == nil {
				into[k.name+what] = &pair{}
			}
			into[k.name+what].add(costs[i], costs[i+2])
		}
	}
	return nil
}

func (k kind) request(dir, name string) volume.Request {
	return volume.Request{
		Objects: k.from,
		Pod:     &v1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "a", UID: types.UID(name)}},
		Spec:    volume.Spec{Volume: &v1.Volume{Name: name, VolumeSource: k.source}},
		Place:   volume.Place{UID: types.UID(name), Dir: filepath.Join(dir, name), Meta: filepath.Join(dir, "meta", name)},
	}
}

// sweep removes the directory with what is in it, also what is mounted there after a failure.
func sweep(dir string) error {
	infos, err := mountinfo.GetMounts(mountinfo.PrefixFilter(dir))
	for _, info := range infos {
		err = errors.Join(err, unix.Unmount(info.Mountpoint, unix.MNT_DETACH|unix.UMOUNT_NOFOLLOW))
	}
	if err != nil {
		return err
	}
	return os.RemoveAll(dir)
}

// each does something for each of the volumes, and returns what one of them cost.
func (o Options) each(do func(name string) error) (cost, error) {
	before, err := cpu()
	if err != nil {
		return cost{}, err
	}
	began := time.Now()
	for i := range o.Single {
		if err := do(fmt.Sprintf("volume-%d", i)); err != nil {
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

// bare makes a volume as plainly as the layout allows: a directory with the files, a link to it that is renamed
// into place, a link for each file; before that a tmpfs, if it is to be in memory.
func bare(dir string, memory bool) error {
	if err := unix.Mkdir(dir, 0o777); err != nil {
		return err
	}
	if memory {
		if err := unix.Mount("tmpfs", dir, "tmpfs", 0, "size=1m"); err != nil {
			return err
		}
	}
	return fill(dir)
}

func bareRemove(dir string, memory bool) error {
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
	object.View
	config *v1.ConfigMap
	secret *v1.Secret
}

// ConfigMap returns it.
func (o objects) ConfigMap(context.Context, string, string) (*v1.ConfigMap, error) {
	return o.config, nil
}

// Secret returns it.
func (o objects) Secret(context.Context, string, string) (*v1.Secret, error) { return o.secret, nil }
