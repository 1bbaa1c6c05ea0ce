package layout

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"
	"k8s.io/apimachinery/pkg/types"
)

var web = Pod{Namespace: "default", Name: "web-node", UID: "0123abcd"}

func newDirs(t testing.TB) *Dirs {
	dir := t.TempDir()
	return NewDirs(DirsConfig{PodLogsDir: filepath.Join(dir, "log", "pods"), LinksDir: filepath.Join(dir, "log", "containers")})
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func (d *Dirs) log(t *testing.T, container, name string) string {
	t.Helper()
	must(t, d.Create(web, container))
	path := filepath.Join(PodDir(d.conf.PodLogsDir, web), container, name)
	must(t, os.WriteFile(path, []byte("line\n"), 0o640))
	return path
}

func names(t *testing.T, dir string) []string {
	t.Helper()
	entries, err := os.ReadDir(dir)
	must(t, err)
	out := []string{}
	for _, e := range entries {
		out = append(out, e.Name())
	}
	return out
}

func TestAnInstancesLogAndLink(t *testing.T) {
	old := unix.Umask(0o022)
	defer unix.Umask(old)
	d := newDirs(t)
	inst := Instance{Container: "main", Attempt: 2, ID: "c0ffee"}
	for range 2 {
		must(t, d.Create(web, "main"))
		must(t, d.Link(web, inst))
	}
	if got, want := PodDir(d.conf.PodLogsDir, web), filepath.Join(d.conf.PodLogsDir, "default_web-node_0123abcd"); got != want {
		t.Errorf("directory %s, want %s", got, want)
	}
	if st, err := os.Stat(filepath.Join(PodDir(d.conf.PodLogsDir, web), "main")); err != nil || st.Mode() != os.ModeDir|0o755 {
		t.Errorf("directory %v, %v", st, err)
	}
	log := d.log(t, "main", "2.log")
	link := filepath.Join(d.conf.LinksDir, "web-node_default_main-c0ffee.log")
	if got, err := os.Readlink(link); err != nil || got != log || got != filepath.Join(PodDir(d.conf.PodLogsDir, web), "main/2.log") {
		t.Errorf("link to %q (%v), want %q", got, err, log)
	}
	for _, name := range []string{"2.log.20240101-120000", "2.log.20240101-120000.gz", "12.log", "22.log.gz", "2.logs", "x"} {
		d.log(t, "main", name)
	}
	for range 2 {
		must(t, d.Remove(web, inst))
	}
	if diff := cmp.Diff([]string{"12.log", "2.logs", "22.log.gz", "x"}, names(t, filepath.Dir(log))); diff != "" {
		t.Errorf("logs after removal (-want +got):\n%s", diff)
	}
	if got := names(t, d.conf.LinksDir); len(got) != 0 {
		t.Errorf("links left: %v", got)
	}
	for range 2 {
		must(t, d.RemovePod(web))
	}
	if got := names(t, d.conf.PodLogsDir); len(got) != 0 {
		t.Errorf("logs left: %v", got)
	}
}

func TestNothingThereIsNoError(t *testing.T) {
	d := newDirs(t)
	must(t, d.Remove(web, Instance{Container: "main", ID: "id"}))
	must(t, d.RemovePod(web))
	must(t, d.RemoveDeadLinks())
	if got, err := d.Attempts(web); err != nil || len(got) != 0 {
		t.Errorf("Attempts: %v, %v", got, err)
	}
	if got, err := d.Orphans(); err != nil || len(got) != 0 {
		t.Errorf("Orphans: %v, %v", got, err)
	}
}

func TestALinkThatLeadsElsewhereIsReplaced(t *testing.T) {
	d := newDirs(t)
	inst := Instance{Container: "main", ID: "id"}
	must(t, os.MkdirAll(d.conf.LinksDir, 0o755))
	link := filepath.Join(d.conf.LinksDir, linkName(web, inst))
	must(t, os.Symlink("/elsewhere", link))
	must(t, d.Link(web, inst))
	if got, err := os.Readlink(link); err != nil || !strings.HasSuffix(got, "main/0.log") {
		t.Errorf("link to %q, %v", got, err)
	}
}

func TestAttemptsGoOnFromTheLogs(t *testing.T) {
	d := newDirs(t)
	for _, name := range []string{"0.log", "7.log", "9.log.20240101-120000.gz", "10.log.tmp", "99x.log", "-5.log", "4294967295.log", "99999999999999999999.log", "log", "11.txt"} {
		d.log(t, "main", name)
	}
	d.log(t, "first", "0.log")
	must(t, d.Create(web, "never-ran"))
	must(t, os.WriteFile(filepath.Join(PodDir(d.conf.PodLogsDir, web), "5.log"), nil, 0o600))
	got, err := d.Attempts(web)
	must(t, err)
	if diff := cmp.Diff(map[string]int{"main": 11, "first": 1}, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

func TestOrphans(t *testing.T) {
	d := newDirs(t)
	other := Pod{Namespace: "kube-system", Name: "dns", UID: "f00"}
	must(t, d.Create(other, "main"))
	must(t, d.Create(web, "main"))
	for _, name := range []string{"stray", "a_b", "a_b_c_d", "_b_c", "a_b_", "a_.._c"} {
		must(t, os.Mkdir(filepath.Join(d.conf.PodLogsDir, name), 0o755))
	}
	must(t, os.WriteFile(filepath.Join(d.conf.PodLogsDir, "a_file_here"), nil, 0o600))
	got, err := d.Orphans()
	must(t, err)
	if diff := cmp.Diff([]Pod{web, other}, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

func TestOnlyOurDeadLinksAreRemoved(t *testing.T) {
	d := newDirs(t)
	dead, live := Instance{Container: "dead", ID: "1"}, Instance{Container: "live", ID: "2"}
	must(t, d.Create(web, "live"))
	must(t, d.Link(web, live)) // its log isn't written yet
	must(t, d.Link(web, dead))
	must(t, os.Symlink("/gone/log/pods/x/y/0.log", filepath.Join(d.conf.LinksDir, "foreign.log")))
	must(t, os.Symlink(d.conf.PodLogsDir+"-2/x/y/0.log", filepath.Join(d.conf.LinksDir, "other-agent.log")))
	must(t, os.WriteFile(filepath.Join(d.conf.LinksDir, "file"), nil, 0o600))
	must(t, d.RemoveDeadLinks())
	want := []string{"file", "foreign.log", "other-agent.log", linkName(web, live)}
	if diff := cmp.Diff(want, names(t, d.conf.LinksDir)); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

func TestLongLinkNamesLoseTheirEnd(t *testing.T) {
	d := newDirs(t)
	long := Pod{Namespace: strings.Repeat("n", 63), Name: strings.Repeat("p", 200), UID: "u"}
	inst := Instance{Container: "main", ID: strings.Repeat("f", 64)}
	must(t, d.Link(long, inst))
	got := names(t, d.conf.LinksDir)
	if len(got) != 1 || len(got[0]) != 255 || !strings.HasSuffix(got[0], ".log") || !strings.HasPrefix(got[0], long.Name+"_n") {
		t.Errorf("links %v", got)
	}
	must(t, d.Remove(long, inst))
	if got := names(t, d.conf.LinksDir); len(got) != 0 {
		t.Errorf("left: %v", got)
	}
}

func TestNamesThatAreNoPathElements(t *testing.T) {
	d := newDirs(t)
	keep := d.log(t, "main", "0.log")
	for _, bad := range []string{"", ".", "..", "a/b", "../../x", "/"} {
		for _, p := range []Pod{{bad, "n", "u"}, {"ns", bad, "u"}, {"ns", "n", types.UID(bad)}} {
			_, attemptsErr := d.Attempts(p)
			inst := Instance{Container: "main", ID: "id"}
			for op, err := range map[string]error{
				"Create": d.Create(p, "main"), "Link": d.Link(p, inst), "Remove": d.Remove(p, inst),
				"RemovePod": d.RemovePod(p), "Attempts": attemptsErr,
			} {
				if err == nil {
					t.Errorf("%s took %+v", op, p)
				}
			}
		}
		for _, inst := range []Instance{{Container: bad, ID: "id"}, {Container: "main", ID: bad}, {Container: "main", ID: "id", Attempt: -1}} {
			if d.Link(web, inst) == nil || d.Remove(web, inst) == nil {
				t.Errorf("took %+v", inst)
			}
		}
		if d.Create(web, bad) == nil {
			t.Errorf("Create took container %q", bad)
		}
	}
	if _, err := os.Stat(keep); err != nil {
		t.Error(err)
	}
}

// TestLinksOutAreNotFollowed: who may write to the log directories can't make us reach
// outside of them.
func TestLinksOutAreNotFollowed(t *testing.T) {
	d := newDirs(t)
	outside := t.TempDir()
	precious := filepath.Join(outside, "0.log")
	must(t, os.WriteFile(precious, nil, 0o600))
	must(t, os.MkdirAll(PodDir(d.conf.PodLogsDir, web), 0o755))
	must(t, os.Symlink(outside, filepath.Join(PodDir(d.conf.PodLogsDir, web), "main")))
	if err := d.Remove(web, Instance{Container: "main", ID: "id"}); err == nil {
		t.Error("Remove followed a link out")
	}
	if err := d.Create(web, "main"); err == nil {
		t.Error("Create took a link that leads out for a directory")
	}
	if got, err := d.Attempts(web); err != nil || len(got) != 0 {
		t.Errorf("Attempts looked outside: %v, %v", got, err)
	}
	must(t, d.RemovePod(web))
	if _, err := os.Stat(precious); err != nil {
		t.Errorf("removed what is outside: %v", err)
	}
}

func TestRetireKeepsOneLog(t *testing.T) {
	logs, links := t.TempDir(), t.TempDir()
	d := NewDirs(DirsConfig{PodLogsDir: logs, LinksDir: links})
	p := Pod{Namespace: "default", Name: "web", UID: "u1"}
	if err := d.Create(p, "c"); err != nil {
		t.Fatal(err)
	}
	for n := range 4 {
		i := Instance{Container: "c", Attempt: n, ID: fmt.Sprint("id", n)}
		if err := os.WriteFile(filepath.Join(logs, "default_web_u1", "c", fmt.Sprintf("%d.log", n)), nil, 0o600); err != nil {
			t.Fatal(err)
		}
		if err := d.Link(p, i); err != nil {
			t.Fatal(err)
		}
	}
	if err := d.Retire(p, Instance{Container: "c", Attempt: 2, ID: "id2"}); err != nil {
		t.Fatal(err)
	}
	left, _ := filepath.Glob(filepath.Join(logs, "*/c/*"))
	linked, _ := filepath.Glob(filepath.Join(links, "*id2*"))
	if len(left) != 2 || filepath.Base(left[0]) != "2.log" || filepath.Base(left[1]) != "3.log" || len(linked) != 0 {
		t.Errorf("left: %v, links %v", left, linked)
	}
}
