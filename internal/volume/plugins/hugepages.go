package plugins

import (
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/sys/unix"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	resourcehelper "k8s.io/component-helpers/resource"

	host "github.com/deckhand-node/deckhand/internal/host/capacity"
	"github.com/deckhand-node/deckhand/internal/volume"
)

// inHugePages mounts a hugetlbfs of one page size, which is limited to the pod's request
// (https://kubernetes.io/docs/tasks/manage-hugepages/scheduling-hugepages/: such a volume "may not consume more
// huge page memory than the pod request").
func (p *EmptyDir) inHugePages(r volume.Request) error {
	page, size, err := pages(r.Pod, r.Spec.Volume.EmptyDir.Medium)
	if err != nil {
		return err
	}
	if err := os.MkdirAll(r.Dir, 0o750); err != nil {
		return err
	}
	dir, err := openDir(r.Dir)
	if err != nil {
		return err
	}
	defer dir.Close()
	mounted, err := isHugetlbfs(dir)
	if mounted || err != nil {
		return err
	}
	if err := p.offered(page); err != nil {
		return err
	}
	options := map[string]string{"pagesize": fmt.Sprint(page),
		"size": fmt.Sprint(smaller(size, r.Spec.Volume.EmptyDir))}
	if gid, ok := volume.FSGroup(r.Pod); ok {
		options["gid"] = fmt.Sprint(gid)
	}
	if err := mountHugetlbfs(dir, options, mode(r.Pod)); err != nil {
		return fmt.Errorf("mount huge pages (%v) at %s: %w", options, r.Dir, err)
	}
	return nil
}

// mountHugetlbfs mounts a hugetlbfs on the directory. It sets the mode of the hugetlbfs before that with chmod,
// because the mount option for the mode doesn't support every mode.
func mountHugetlbfs(dir *os.File, options map[string]string, mode uint32) error {
	config, err := unix.Fsopen("hugetlbfs", unix.FSOPEN_CLOEXEC)
	if errors.Is(err, unix.ENOSYS) {
		return fmt.Errorf("this needs Linux 5.2: %w", err)
	}
	if err != nil {
		return err
	}
	defer unix.Close(config)
	for name, value := range options {
		if err := unix.FsconfigSetString(config, name, value); err != nil {
			return fmt.Errorf("%s=%s: %w", name, value, err)
		}
	}
	if err := unix.FsconfigCreate(config); err != nil {
		return err
	}
	mounted, err := unix.Fsmount(config, unix.FSMOUNT_CLOEXEC, 0)
	if err != nil {
		return err
	}
	defer unix.Close(mounted)
	if err := unix.Chmod(fmt.Sprintf("/proc/self/fd/%d", mounted), mode); err != nil {
		return fmt.Errorf("set its mode: %w", err)
	}
	return unix.MoveMount(mounted, "", int(dir.Fd()), "", unix.MOVE_MOUNT_F_EMPTY_PATH|unix.MOVE_MOUNT_T_EMPTY_PATH)
}

// isHugetlbfs reports whether the directory is on a hugetlbfs. If so, the volume is mounted already: the directory
// is the root of the mount, because its parents are on disk.
func isHugetlbfs(dir *os.File) (bool, error) {
	var st unix.Statfs_t
	if err := unix.Fstatfs(int(dir.Fd()), &st); err != nil {
		return false, fmt.Errorf("find out what %s is on: %w", dir.Name(), err)
	}
	return st.Type == unix.HUGETLBFS_MAGIC, nil
}

// pages returns the volume's page size, and the pod's total request of huge pages of that size, both in bytes.
func pages(p *v1.Pod, medium v1.StorageMedium) (page, total int64, err error) {
	asked := hugePages(p)
	sizes := slices.Sorted(maps.Keys(asked))
	named, ok := strings.CutPrefix(string(medium), string(v1.StorageMediumHugePagesPrefix))
	if !ok {
		switch len(sizes) {
		case 0:
			return 0, 0, errors.New(
				"medium HugePages needs containers that ask for huge pages: set resources such as limits.hugepages-2Mi")
		case 1:
			return sizes[0], asked[sizes[0]], nil
		}
		return 0, 0, fmt.Errorf(
			"medium HugePages leaves open which pages are meant, since the pod's containers ask for some of %s: use "+
				"HugePages-%s", names(sizes, " and "), names(sizes[:1], ""))
	}
	q, err := resource.ParseQuantity(named)
	if err != nil || q.Sign() <= 0 {
		return 0, 0, fmt.Errorf("medium %q is %w: %q is no size of huge pages, such as 2Mi", medium,
			volume.ErrUnsupported, named)
	}
	page = q.Value()
	if asked[page] == 0 {
		return 0, 0, fmt.Errorf("medium %s needs containers that ask for such pages: set limits.hugepages-%s", medium,
			named)
	}
	return page, asked[page], nil
}

// hugePages returns the pod's total request of huge pages, in bytes by page size.
func hugePages(p *v1.Pod) map[int64]int64 {
	asked := map[int64]int64{}
	options := resourcehelper.PodResourcesOptions{}
	for _, list := range []v1.ResourceList{resourcehelper.PodRequests(p, options),
		resourcehelper.PodLimits(p, options)} {
		for name, quantity := range list {
			size, ok := strings.CutPrefix(string(name), v1.ResourceHugePagesPrefix)
			page, err := resource.ParseQuantity(size)
			if ok && err == nil && quantity.Sign() > 0 {
				asked[page.Value()] = max(asked[page.Value()], quantity.Value())
			}
		}
	}
	return asked
}

// offered checks that the host has pages of this size: without them, the kernel kills a process that uses the
// volume.
func (p *EmptyDir) offered(page int64) error {
	list, err := host.ReadHugePages(os.DirFS(p.conf.HugePages))
	if err != nil {
		return fmt.Errorf("find out whether the host has huge pages of %s: %w", size(page), err)
	}
	offer := "its kernel has none at all"
	var sizes []int64
	for _, has := range list {
		switch {
		case has.Size != page:
			sizes = append(sizes, has.Size)
		case has.Count == 0 && has.Overcommit == 0:
			return fmt.Errorf("this host has set aside no huge pages of %s: write how many it is to have to %s",
				size(page), filepath.Join(p.conf.HugePages, fmt.Sprintf("hugepages-%dkB", page/1024), "nr_hugepages"))
		default:
			return nil
		}
	}
	if len(sizes) > 0 {
		slices.Sort(sizes)
		offer = "its kernel offers " + names(sizes, " and ")
	}
	return fmt.Errorf("this host has no huge pages of %s: %s", size(page), offer)
}

// names formats page sizes as in names of resources, such as "2Mi", separated by the argument and.
func names(sizes []int64, and string) string {
	texts := make([]string, len(sizes))
	for i, s := range sizes {
		texts[i] = size(s)
	}
	return strings.Join(texts, and)
}

func size(bytes int64) string { return resource.NewQuantity(bytes, resource.BinarySI).String() }
