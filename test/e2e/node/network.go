package node

import (
	"fmt"
	"os/exec"
	"strings"
	"syscall"
)

// OwnNetwork gives the node a network namespace of its own, for all its starts. One link joins that to the host, whose name and address there are returned.
func (n *Node) OwnNetwork() (link, address string) {
	n.t.Helper()
	holder := exec.Command("sleep", "infinity")
	holder.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWNET}
	p, err := launch(holder)
	if err != nil {
		n.t.Fatal(err)
	}
	n.t.Cleanup(p.kill)
	pid := holder.Process.Pid
	n.network = fmt.Sprintf("/proc/%d/ns/net", pid)
	link, address = fmt.Sprint("dhlink", n.slot), fmt.Sprintf("10.215.%d.1", n.slot)
	_ = exec.Command("ip", "link", "del", link).Run() // that of a test that was killed
	n.ip("ip", fmt.Sprintf("link add %s type veth peer name eth0 netns %d\naddr add %s/30 dev %[1]s\nlink set %[1]s up\n", link, pid, address))
	n.ip("nsenter --net="+n.network+" ip", fmt.Sprintf("link set lo up\naddr add 10.215.%d.2/30 dev eth0\nlink set eth0 up\nroute add default via %s\n", n.slot, address))
	return link, address
}

func (n *Node) ip(command, lines string) {
	n.t.Helper()
	args := append(strings.Fields(command), "-batch", "-")
	cmd := exec.Command(args[0], args[1:]...)
	cmd.Stdin = strings.NewReader(lines)
	if out, err := cmd.CombinedOutput(); err != nil {
		n.t.Fatalf("%s: %v: %s\n%s", command, err, out, lines)
	}
}
