package kernel

import (
	"bufio"
	"encoding/binary"
	"errors"
	"fmt"
	"io/fs"
	"net/netip"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	v1 "k8s.io/api/core/v1"
)

// Listener is a socket of the network namespace that receives connections or packets on its port.
type Listener struct {
	Protocol v1.Protocol
	// Address is unspecified if the socket listens on all of the host's addresses.
	Address netip.Addr
	Port    uint16
	inode   string
}

// Listeners returns the listening TCP and UDP sockets of the network namespace whose /proc is at proc
// (Documentation/networking/proc_net_tcp.rst). SCTP sockets aren't included.
func Listeners(proc string) ([]Listener, error) {
	var all []Listener
	for _, table := range []struct {
		name     string
		protocol v1.Protocol
		// state is the kernel's code for a socket that receives connections or packets: TCP_LISTEN for TCP; TCP_CLOSE
		// for UDP, which means not connected.
		state string
	}{{"tcp", v1.ProtocolTCP, "0A"}, {
		"tcp6", v1.ProtocolTCP, "0A"}, {"udp", v1.ProtocolUDP, "07"}, {"udp6", v1.ProtocolUDP, "07"}} {
		list, err := listenersOf(filepath.Join(proc, "net", table.name), table.protocol, table.state)
		if err != nil && !errors.Is(err, fs.ErrNotExist) { // a host without IPv6
			return nil, fmt.Errorf("list the ports that are in use: %w", err)
		}
		all = append(all, list...)
	}
	return all, nil
}

func listenersOf(path string, protocol v1.Protocol, state string) ([]Listener, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	var all []Listener
	lines := bufio.NewScanner(f)
	for lines.Scan() {
		// columns: sl local_address rem_address st tx_queue:rx_queue tr:tm->when retrnsmt uid timeout inode
		words := strings.Fields(lines.Text())
		if len(words) < 10 || words[3] != state {
			continue
		}
		address, port, err := endpoint(words[1])
		if err != nil {
			return nil, fmt.Errorf("%s: %w", path, err)
		}
		all = append(all, Listener{protocol, address, port, words[9]})
	}
	return all, lines.Err()
}

// endpoint parses the kernel's form of an address and port, such as "0100007F:1F90". The address consists of 32-bit
// words in the machine's byte order.
func endpoint(text string) (netip.Addr, uint16, error) {
	address, port, _ := strings.Cut(text, ":")
	number, err := strconv.ParseUint(port, 16, 16)
	if err != nil || len(address) != 8 && len(address) != 32 {
		return netip.Addr{}, 0, fmt.Errorf("socket %q: not an address and a port", text)
	}
	bytes := make([]byte, 0, 16)
	for ; address != ""; address = address[8:] {
		word, err := strconv.ParseUint(address[:8], 16, 32)
		if err != nil {
			return netip.Addr{}, 0, fmt.Errorf("socket %q: not an address and a port", text)
		}
		bytes = binary.NativeEndian.AppendUint32(bytes, uint32(word))
	}
	ip, _ := netip.AddrFromSlice(bytes)
	return ip.Unmap(), uint16(number), nil
}

// Process is a process that has a socket open.
type Process struct {
	PID  int
	Name string
	// Cgroups is the text of /proc/PID/cgroup.
	Cgroups string
}

// Owner returns a process that has the socket open; proc is the path of /proc. It reads the file descriptors of all
// processes, so call it only for a socket whose port conflicts with a pod. It returns false if no process is found:
// the socket may belong to the kernel itself, or to another PID namespace.
func (l Listener) Owner(proc string) (Process, bool) {
	link := "socket:[" + l.inode + "]"
	fds, err := filepath.Glob(filepath.Join(proc, "[0-9]*", "fd", "[0-9]*"))
	if err != nil {
		return Process{}, false
	}
	for _, fd := range fds {
		if to, err := os.Readlink(fd); err != nil || to != link {
			continue
		}
		dir := filepath.Dir(filepath.Dir(fd))
		pid, err := strconv.Atoi(filepath.Base(dir))
		if err != nil {
			continue
		}
		name, err := os.ReadFile(filepath.Join(dir, "comm"))
		if err != nil {
			continue // the process has just ended
		}
		groups, _ := os.ReadFile(filepath.Join(dir, "cgroup"))
		return Process{PID: pid, Name: strings.TrimSpace(string(name)), Cgroups: string(groups)}, true
	}
	return Process{}, false
}
