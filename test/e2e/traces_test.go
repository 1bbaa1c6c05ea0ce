package e2e

import (
	"fmt"
	"io/fs"
	"maps"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/moby/sys/mountinfo"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/deckhand-node/deckhand/internal/runtime/memcri"
	"github.com/deckhand-node/deckhand/test/e2e/node"
)

// Pods with volumes of all kinds leave no trace on a real runtime.
func TestVolumesLeaveNoTrace(t *testing.T) {
	t.Parallel()
	n := node.New(t, binary, node.Options{Archives: []string{tools, crewArchive(t)}})
	n.Start()
	leaveNoTrace(t, n, 10, tools1, crewNamed)
}

// Nor do many, of which the runtime keeps only the thought: the volumes are as real as ever.
func TestManyVolumesLeaveNoTrace(t *testing.T) {
	t.Parallel()
	n := node.New(t, binary, node.Options{Config: "cgroupDriver: cgroupfs"})
	images := []string{"example.com/app:1", "example.com/crew:1"}
	s, err := memcri.New(memcri.Options{Images: images, WriteLogs: true, EventQueue: 10_000, CgroupDriver: runtimeapi.CgroupDriver_CGROUPFS})
	if err != nil {
		t.Fatal(err)
	}
	socket := filepath.Join(n.Base, "cri.sock")
	if err := s.Start(socket); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.Close)
	n.StartAs(node.Life{Flags: []string{"--container-runtime-endpoint", "unix://" + socket}})
	leaveNoTrace(t, n, 100, images[0], images[1])
}

// leaveNoTrace starts and removes so many pods with six volumes each, twice, and compares what is mounted
// and the directories before and after.
func leaveNoTrace(t *testing.T, n *node.Node, pods int, image, volumeImage string) {
	t.Helper()
	mountOn(t, "tmpfs", filepath.Join(n.Base, "host"), "tmpfs", 0) // what is the node's is none of the pods'
	n.Write("objects.yaml", documents(configMap("trace", "a: b"), secret("trace", "password: hush"), localPV("trace", "trace", hostDir(t, n, "pv")), claim("trace", "trace")))
	// One pod stays, so that nothing of what pods share comes and goes.
	n.Write("stays.yaml", tracePod(n, 2, image, volumeImage, "stays"))
	v := view(t, n.Await("one runs", node.Ready("stays")), "stays")
	mounts, directories := traceMounts(t, n), traceDirs(t, n)
	for round := range 2 {
		var names []string
		for i := range pods {
			name := fmt.Sprintf("trace-%d", i)
			names = append(names, name)
			n.Write(name+".yaml", tracePod(n, i, image, volumeImage, name))
		}
		n.Await("all run", node.Ready(names...))
		if now := len(traceMounts(t, n)); now < len(mounts)+pods {
			t.Errorf("round %d: %d mounts with all pods, %d without: the comparison would show nothing", round, now, len(mounts))
		}
		for _, name := range names {
			n.Remove(name + ".yaml")
		}
		n.Await("they are gone", node.Only("stays"))
		n.Eventually("what is mounted is as before", func() error { return differ("mounts", mounts, traceMounts(t, n)) })
		n.Eventually("the directories are as before", func() error { return differ("directories", directories, traceDirs(t, n)) })
	}
	if err := holds(onDisk(n, v, "projected", "all")+"/a", "b")(); err != nil {
		t.Errorf("the one that stays lost its volume: %v", err)
	}
	n.Remove("stays.yaml")
	n.Await("all are gone", node.Only())
	n.Eventually("its directory is gone", isGone(filepath.Join(n.RootDir, "pods", string(v.Pod.UID))))
}

// tracePod has six volumes, of other kinds than the pods before and after it.
func tracePod(n *node.Node, number int, image, volumeImage, name string) string {
	mounts, volumes := allKinds(n, "trace", number)
	if number%2 == 1 {
		mounts[5], volumes[5] = "{name: image, mountPath: /image}", "{name: image, image: {reference: '"+volumeImage+"'}}"
	}
	if strings.HasPrefix(mounts[3], "{name: disk") || strings.HasPrefix(mounts[4], "{name: disk") {
		mounts = append(mounts, "{name: disk, mountPath: /part, subPath: deep/part}")
	}
	text := withVolumes(toolPod(n, name, containers(strings.Replace(mounting(tool("main", "survey -stay"), mounts...), tools1, image, 1))), volumes...)
	return strings.Replace(text, "labels: {}", "annotations: {tide: low}", 1)
}

// traceMounts is what is mounted below the node's directory, each as often as it is.
func traceMounts(t *testing.T, n *node.Node) []string {
	t.Helper()
	infos, err := mountinfo.GetMounts(mountinfo.PrefixFilter(n.Base))
	if err != nil {
		t.Fatal(err)
	}
	var out []string
	for _, info := range infos {
		out = append(out, info.FSType+" at "+info.Mountpoint)
	}
	slices.Sort(out)
	return out
}

// traceDirs lists what is in the node's directories, but for what is the runtime's, and the journals that
// tell of pods on purpose.
func traceDirs(t *testing.T, n *node.Node) []string {
	t.Helper()
	all := map[string]bool{}
	for _, dir := range []string{n.RootDir, n.PodLogs, n.LogLinks} {
		err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
			if err != nil {
				return err
			}
			switch name, _ := filepath.Rel(n.RootDir, path); name {
			case "containerd", "cni", "journal":
				return fs.SkipDir
			case "checkpoints/images.json", "checkpoints/events.jsonl": // which are written seldom
			default:
				all[path] = true
			}
			return nil
		})
		if err != nil {
			return []string{err.Error()} // something went meanwhile
		}
	}
	return slices.Sorted(maps.Keys(all))
}

// differ reports how two lists differ.
func differ(what string, before, after []string) error {
	var different []string
	for _, list := range []struct {
		sign        string
		here, there []string
	}{{"+", after, before}, {"-", before, after}} {
		for _, s := range list.here {
			if !slices.Contains(list.there, s) {
				different = append(different, list.sign+s)
			}
		}
	}
	if len(different) > 0 || len(before) != len(after) {
		return fmt.Errorf("%d %s before, %d after: %s", len(before), what, len(after), strings.Join(different, ", "))
	}
	return nil
}
