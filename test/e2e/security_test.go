package e2e

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
	v1 "k8s.io/api/core/v1"

	"github.com/deckhand-node/deckhand/internal/server/local"
	"github.com/deckhand-node/deckhand/test/e2e/node"
)

// Fields of security contexts, as the processes that they are about find them in force.
func TestSecurity(t *testing.T) {
	t.Parallel()
	n := node.New(t, binary, node.Options{Archives: []string{tools, crewArchive(t)}, Config: "allowedUnsafeSysctls: ['kernel.msg*']"})
	writeSeccompProfile(t, n)
	n.Start()
	t.Run("fields", func(t *testing.T) {
		for name, test := range map[string]func(*testing.T, *node.Node){
			"users and groups": testUsersAndGroups, "users of images": testImageUsers, "root refused": testRootRefused, "rights": testRights, "seccomp": testSeccomp,
			"sysctls": testSysctls, "namespaces": testNamespaces, "processes shared": testSharedProcesses, "AppArmor": testAppArmor, "streams": testStreams,
			"user namespaces out of reach": testUsersOutOfReach,
		} {
			t.Run(name, func(t *testing.T) {
				t.Parallel()
				test(t, n.For(t))
			})
		}
	})
	testForbiddenSysctl(t, n)
}

// looks waits until a pod whose containers look around is done, and returns what each sees.
func looks(t *testing.T, n *node.Node, pod string, names ...string) map[string]sight {
	t.Helper()
	n.Await(pod+" has looked around", node.Phase(pod, v1.PodSucceeded))
	out := map[string]sight{}
	for _, name := range names {
		out[name] = sees(t, n, pod, name)
	}
	return out
}

// want fails the test unless what was seen is so.
func want(t *testing.T, what string, got, want any) {
	t.Helper()
	if fmt.Sprint(got) != fmt.Sprint(want) {
		t.Errorf("%s is %v, want %v", what, got, want)
	}
}

// The container's own wins over the pod's; the image's groups count unless the policy is Strict.
func testUsersAndGroups(t *testing.T, n *node.Node) {
	const ids = "securityContext: {runAsUser: 1000, runAsGroup: 2000, fsGroup: 3000, supplementalGroups: [4000, 5000], supplementalGroupsPolicy: %s}"
	for pod, groups := range map[string]string{"merge": "2000 3000 4000 5000 7000", "strict": "2000 3000 4000 5000"} {
		policy := strings.ToUpper(pod[:1]) + pod[1:]
		n.Write(pod+".yaml", toolPod(n, pod, fmt.Sprintf(ids, policy),
			containers(crew(crewNamed, "pods", "look -stay"), crew(crewNamed, "own", "look -stay", secured("runAsUser: 1001", "runAsGroup: 2001", "runAsNonRoot: true")))))
		want(t, pod+": who runs as the pod says", sees(t, n, pod, "pods").who(), "1000 2000 ["+groups+"]")
		want(t, pod+": who has an own user", sees(t, n, pod, "own").who(), "1001 2001 [2001 3000 4000 5000]")
		n.Await("the status tells who it is", container(pod, "own", func(c v1.ContainerStatus) error {
			if c.User == nil || c.User.Linux == nil || c.User.Linux.UID != 1001 || c.User.Linux.GID != 2001 || len(c.User.Linux.SupplementalGroups) != 4 {
				return fmt.Errorf("user %+v", c.User)
			}
			return nil
		}))
		remove(t, n, pod)
	}
}

// Who the image runs as stays so where the pod doesn't say otherwise, and the group alone can be another.
func testImageUsers(t *testing.T, n *node.Node) {
	n.Write("image.yaml", toolPod(n, "image", "restartPolicy: Never", containers(
		crew(crewNamed, "named", "look"), crew(crewNumbered, "numbered", "look", secured("runAsNonRoot: true")),
		crew(crewNamed, "named-group", "look", secured("runAsGroup: 2000")), crew(crewNumbered, "numbered-group", "look", secured("runAsGroup: 2000")),
		tool("root-group", "look", secured("runAsGroup: 2000")))))
	all := looks(t, n, "image", "named", "numbered", "named-group", "numbered-group", "root-group")
	for name, who := range map[string]string{
		"named": "1000 1000 [1000 7000]", "numbered": "1000 1000 [1000 7000]", "named-group": "1000 2000 [2000 7000]",
		"numbered-group": "1000 2000 [2000 7000]", "root-group": "0 2000 [2000]",
	} {
		want(t, name, all[name].who(), who)
	}
	want(t, "where the image begins", all["named"].Dir, "/home/sailor")
}

// runAsNonRoot holds what would run as root, or might.
func testRootRefused(t *testing.T, n *node.Node) {
	nonRoot := secured("runAsNonRoot: true")
	n.Write("refused.yaml", toolPod(n, "refused", containers(
		tool("image", "look", nonRoot), crew(crewNamed, "name", "look", nonRoot), tool("zero", "look", secured("runAsNonRoot: true", "runAsUser: 0")))))
	n.Await("none of them runs", waits("refused", "image", "CreateContainerConfigError", "image runs as root"),
		waits("refused", "name", "CreateContainerConfigError", `names its user "sailor"`), waits("refused", "zero", "CreateContainerConfigError", "runAsUser is 0"))
	remove(t, n, "refused")
}

// waits is the condition that a container waits, for this reason and with these words.
func waits(pod, name, reason, words string) node.Condition {
	return container(pod, name, func(c v1.ContainerStatus) error {
		if w := c.State.Waiting; w == nil || w.Reason != reason || !strings.Contains(w.Message, words) {
			return fmt.Errorf("is %+v, want it to wait for %s with %q", c.State, reason, words)
		}
		return nil
	})
}

func testRights(t *testing.T, n *node.Node) {
	const command = "look -mkdir /made /proc/self/mountinfo"
	n.Write("rights.yaml", toolPod(n, "rights", "restartPolicy: Never", containers(
		tool("usual", command), tool("fewer", command, secured("capabilities: {drop: [ALL], add: [NET_BIND_SERVICE]}", "allowPrivilegeEscalation: false", "readOnlyRootFilesystem: true")),
		tool("more", command, secured("capabilities: {drop: [CHOWN], add: [SYS_TIME]}")), tool("all", command, secured("capabilities: {add: [ALL]}")),
		tool("user", command, secured("runAsUser: 1000", "capabilities: {add: [SYS_TIME]}")), tool("privileged", command, secured("privileged: true")))))
	all := looks(t, n, "rights", "usual", "fewer", "more", "all", "user", "privileged")
	own := sight{Status: map[string]string{"CapBnd": ownStatus(t, "CapBnd")}}.capabilities(t, "CapBnd")
	usual := all["usual"].capabilities(t, "CapEff")
	for name, set := range map[string]uint64{
		"fewer": 1 << unix.CAP_NET_BIND_SERVICE, "more": usual&^(1<<unix.CAP_CHOWN) | 1<<unix.CAP_SYS_TIME, "all": own, "privileged": own,
		"user": 0, // capabilities that aren't ambient are lost with the change of the user
	} {
		want(t, "effective set of "+name, strconv.FormatUint(all[name].capabilities(t, "CapEff"), 16), strconv.FormatUint(set, 16))
	}
	if usual == 0 || usual&(1<<unix.CAP_SYS_ADMIN|1<<unix.CAP_SYS_TIME) != 0 || all["user"].capabilities(t, "CapBnd") != usual|1<<unix.CAP_SYS_TIME {
		t.Errorf("the usual set is %x, bounds of user are %s", usual, all["user"].Status["CapBnd"])
	}
	for name, made := range map[string]string{"usual": "0:0", "fewer": unix.EROFS.Error(), "user": unix.EACCES.Error(), "privileged": "0:0"} {
		want(t, "a directory made by "+name, all[name].Made["/made"], made)
	}
	for name, no := range map[string]string{"usual": "0", "fewer": "1", "privileged": "0"} {
		want(t, "no_new_privs of "+name, all[name].Status["NoNewPrivs"], no)
	}
	testMasks(t, all["usual"].mounts(), true)
	testMasks(t, all["privileged"].mounts(), false)
}

// testMasks looks at what is hidden of /proc and can't be written there.
func testMasks(t *testing.T, mounts map[string]string, masked bool) {
	t.Helper()
	if _, hidden := mounts["/proc/interrupts"]; hidden != masked {
		t.Errorf("/proc/interrupts is hidden: %v, want %v; mounted is %q", hidden, masked, mounts)
	}
	if readonly := strings.HasPrefix(mounts["/proc/sys"], "ro"); readonly != masked {
		t.Errorf("/proc/sys is read-only: %v, want %v; mounted is %q", readonly, masked, mounts)
	}
}

// ownStatus is a field of this process's status.
func ownStatus(t *testing.T, field string) string {
	t.Helper()
	text, err := os.ReadFile("/proc/self/status")
	if err != nil {
		t.Fatal(err)
	}
	return statusField(string(text), field)
}

func statusField(text, field string) string {
	for line := range strings.Lines(text) {
		if value, ok := strings.CutPrefix(line, field+":"); ok {
			return strings.TrimSpace(value)
		}
	}
	return ""
}

// writeSeccompProfile puts a profile on the node that fails mkdir as no file system would.
func writeSeccompProfile(t *testing.T, n *node.Node) {
	t.Helper()
	const profile = `{"defaultAction": "SCMP_ACT_ALLOW", "syscalls": [{"names": ["mkdir", "mkdirat"], "action": "SCMP_ACT_ERRNO", "errnoRet": 95}]}`
	dir := filepath.Join(n.RootDir, "seccomp", "profiles")
	if err := os.MkdirAll(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "no-mkdir.json"), []byte(profile), 0o600); err != nil {
		t.Fatal(err)
	}
}

func testSeccomp(t *testing.T, n *node.Node) {
	profile := func(fields string) string { return secured("seccompProfile: {" + fields + "}") }
	const command = "look -mkdir /made"
	n.Write("seccomp.yaml", toolPod(n, "seccomp", "restartPolicy: Never", "securityContext: {seccompProfile: {type: RuntimeDefault}}", containers(
		tool("pods", command), tool("unconfined", command, profile("type: Unconfined")), tool("privileged", command, secured("privileged: true")),
		tool("localhost", command, profile("type: Localhost, localhostProfile: profiles/no-mkdir.json")))))
	n.Write("unnamed.yaml", toolPod(n, "unnamed", "restartPolicy: Never", containers(tool("usual", command))))
	all := looks(t, n, "seccomp", "pods", "unconfined", "privileged", "localhost")
	all["usual"] = looks(t, n, "unnamed", "usual")["usual"]
	const off, filtered = "0", "2"
	for name, mode := range map[string]string{"pods": filtered, "unconfined": off, "privileged": off, "localhost": filtered, "usual": off} {
		want(t, "seccomp mode of "+name, all[name].Status["Seccomp"], mode)
	}
	want(t, "mkdir where it is denied", all["localhost"].Made["/made"], unix.EOPNOTSUPP.Error())
	want(t, "mkdir where it isn't", all["pods"].Made["/made"], "0:0")

	n.Write("missing.yaml", toolPod(n, "missing", containers(tool("main", "look", profile("type: Localhost, localhostProfile: none.json")))))
	n.Await("a missing profile holds its container", waits("missing", "main", "CreateContainerError", "none.json"))
	remove(t, n, "missing")
}

func testSysctls(t *testing.T, n *node.Node) {
	settings := map[string]string{"net.ipv4.ping_group_range": "0 1000", "kernel.shm_rmid_forced": "1", "kernel.msgmax": "12345"}
	var list, files []string
	for name, value := range settings {
		list = append(list, fmt.Sprintf("{name: %s, value: %q}", name, value))
		files = append(files, "/proc/sys/"+strings.ReplaceAll(name, ".", "/"))
	}
	n.Write("sysctls.yaml", toolPod(n, "sysctls", "restartPolicy: Never", "securityContext: {sysctls: ["+strings.Join(list, ", ")+"]}",
		containers(tool("main", "look "+strings.Join(files, " ")))))
	seen := looks(t, n, "sysctls", "main")["main"].Files
	for name, value := range settings {
		want(t, name, strings.Join(strings.Fields(seen["/proc/sys/"+strings.ReplaceAll(name, ".", "/")]), " "), value)
	}
}

// A pod with a sysctl that the node doesn't allow has failed for good, for the next agent too.
func testForbiddenSysctl(t *testing.T, n *node.Node) {
	n.Write("bystander.yaml", toolPod(n, "bystander", containers(tool("main", "act"))))
	n.Write("unsafe.yaml", toolPod(n, "unsafe", "securityContext: {sysctls: [{name: net.core.somaxconn, value: '1024'}]}", containers(tool("main", "act"))))
	refused := failed("unsafe", "SysctlForbidden", "net.core.somaxconn")
	n.Await("it is refused", refused, node.Ready("bystander"))
	n.Kill()
	n.Start()
	n.Await("it stays so", agentIs(n), refused, node.Ready("bystander"))
	for _, c := range n.Containers() {
		if c.Pod == "unsafe-"+node.Name {
			t.Errorf("container %s of the refused pod was made", c.Name)
		}
	}
	want(t, "starts of the one beside it", times(t, n, "bystander", "main started"), 1)
}

// failed is the condition that a pod has failed for this reason, with these words.
func failed(pod, reason, words string) node.Condition {
	return node.Each([]string{pod}, func(v local.PodView) error {
		if st := v.Pod.Status; st.Phase != v1.PodFailed || st.Reason != reason || !strings.Contains(st.Message, words) {
			return fmt.Errorf("phase %s, reason %s, message %q; want it to have failed for %s with %q", st.Phase, st.Reason, st.Message, reason, words)
		}
		return nil
	})
}

// A pod's containers share a network and IPC, and nothing else, unless the pod says so.
func testNamespaces(t *testing.T, n *node.Node) {
	n.Write("own.yaml", toolPod(n, "own", containers(tool("one", "look -stay"), tool("two", "look -stay"))))
	n.Write("hosts.yaml", toolPod(n, "hosts", "hostPID: true", "hostIPC: true", "hostNetwork: true", containers(tool("one", "look -stay"))))
	one, two, hosts := sees(t, n, "own", "one"), sees(t, n, "own", "two"), sees(t, n, "hosts", "one")
	for kind, shared := range map[string]bool{"net": true, "ipc": true, "uts": true, "user": true, "pid": false, "mnt": false} {
		host := hostNamespace(t, kind)
		if same := one.Namespaces[kind] == two.Namespaces[kind]; same != shared {
			t.Errorf("%s of two containers: %s and %s, want them shared: %v", kind, one.Namespaces[kind], two.Namespaces[kind], shared)
		}
		if ofHost := one.Namespaces[kind] == host; ofHost != (kind == "user") {
			t.Errorf("%s of a pod of its own is %s, the host's %s", kind, one.Namespaces[kind], host)
		}
		if ofHost := hosts.Namespaces[kind] == host; ofHost != (kind != "mnt") {
			t.Errorf("%s of a pod that has the host's is %s, the host's %s", kind, hosts.Namespaces[kind], host)
		}
	}
	want(t, "processes of a container", one.Processes, map[int]string{1: "tools"})
	want(t, "what runs as 1 on the host", hosts.Processes[1], hostsFirst(t))
	remove(t, n, "own")
	remove(t, n, "hosts")
}

func hostsFirst(t *testing.T) string {
	t.Helper()
	name, err := os.ReadFile("/proc/1/comm")
	if err != nil {
		t.Fatal(err)
	}
	return strings.TrimSpace(string(name))
}

func testSharedProcesses(t *testing.T, n *node.Node) {
	n.Write("shared.yaml", toolPod(n, "shared", "shareProcessNamespace: true", initContainers(tool("first", "look")),
		containers(tool("one", "look -stay"), tool("two", "look -stay"))))
	first, one, two := sees(t, n, "shared", "first"), sees(t, n, "shared", "one"), sees(t, n, "shared", "two")
	host := hostNamespace(t, "pid")
	if ns := one.Namespaces["pid"]; ns == host || ns != two.Namespaces["pid"] || ns != first.Namespaces["pid"] {
		t.Errorf("PID namespaces are %s, %s and %s, the host's %s", first.Namespaces["pid"], ns, two.Namespaces["pid"], host)
	}
	want(t, "what runs as 1", one.Processes[1], "pause")
	remove(t, n, "shared")
}

// Where the kernel has no AppArmor, who asks for it is refused.
func testAppArmor(t *testing.T, n *node.Node) {
	const current = "/proc/self/attr/current"
	n.Write("armor.yaml", toolPod(n, "armor", "restartPolicy: Never", "securityContext: {appArmorProfile: {type: RuntimeDefault}}", containers(tool("main", "look "+current))))
	if on, err := os.ReadFile("/sys/module/apparmor/parameters/enabled"); err != nil || on[0] != 'Y' {
		n.Await("it is refused", failed("armor", "AppArmor", "not enabled on the host"))
		return
	}
	if profile := looks(t, n, "armor", "main")["main"].Files[current]; !strings.HasSuffix(profile, "(enforce)") {
		t.Errorf("it runs under the profile %q", profile)
	}
}

// Where a process begins, and what it reads and writes.
func testStreams(t *testing.T, n *node.Node) {
	n.Write("streams.yaml", toolPod(n, "streams", "restartPolicy: Never", containers(
		tool("usual", "look"), tool("stdin", "look", "stdin: true", "workingDir: /tmp"), tool("tty", "look", "stdin: true", "tty: true"))))
	all := looks(t, n, "streams", "usual", "stdin", "tty")
	for name, c := range map[string]struct {
		dir, in, out string
	}{"usual": {"/", "/dev/null", "pipe:"}, "stdin": {"/tmp", "pipe:", "pipe:"}, "tty": {"/", "/dev/pts/0", "/dev/pts/0"}} {
		s := all[name]
		if s.Dir != c.dir || !strings.HasPrefix(s.Streams[0], c.in) || !strings.HasPrefix(s.Streams[1], c.out) || !strings.HasPrefix(s.Streams[2], c.out) {
			t.Errorf("%s begins in %s with %q, want %+v", name, s.Dir, s.Streams, c)
		}
	}
}

// The node's directory is closed to everyone but root here: users of other pods' namespaces
// couldn't get to their containers, and that is reported.
func testUsersOutOfReach(t *testing.T, n *node.Node) {
	n.Write("closed.yaml", toolPod(n, "closed", "hostUsers: false", containers(tool("main", "act"))))
	n.AwaitEvent("closed", "FailedCreatePodSandBox", "chmod o+x "+n.Base)
	remove(t, n, "closed")
}
