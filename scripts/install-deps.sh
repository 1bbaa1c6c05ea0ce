#!/bin/sh
# Installs the Debian packages that building and running deckhand needs, those
# that are missing only; with the argument "test", those that the tests need as
# well. Prints a line for each thing that is wrong.
set -eu

missing=
need() { # need PACKAGE COMMAND...: the package is needed unless the command succeeds
	package=$1
	shift
	"$@" >/dev/null 2>&1 || missing="$missing $package"
}

has() { PATH="$PATH:/usr/sbin:/sbin" command -v "$1"; }
netfilter() { has nft || has iptables; }
header() { printf '#include <%s>\n' "$1" | gcc -E -x c -; }

for tool in git go make gcc; do
	has "$tool" >/dev/null || { echo "deckhand: $tool is needed to build; install it first" >&2; exit 1; }
done

need nftables netfilter
need libc6-dev header stdlib.h
need libseccomp-dev header seccomp.h
need pkg-config has pkg-config
need ca-certificates test -e /etc/ssl/certs/ca-certificates.crt
if [ "${1:-}" = test ]; then
	need user-mode-linux has linux.uml    # a kernel with cgroup v2 to run in
	need qemu-system-x86 has qemu-system-x86_64 # a machine with NUMA nodes
	need iptables has iptables-legacy     # that kernel has no nftables
	need nftables has nft                 # to see that no rule is left behind
	need curl has curl
	need iproute2 has ip                  # for machines of the tests' own
	need dpkg-dev has dpkg-shlibdeps      # to build the package, as make dist does
	need systemd has systemd-analyze      # to check its unit
	need dbus has dbus-daemon             # for a systemd of the tests' own
	need e2fsprogs has mkfs.ext4          # file systems with project quotas
	need xfsprogs has mkfs.xfs
fi

if [ -z "$missing" ]; then
	exit 0
fi
if ! has apt-get >/dev/null; then
	echo "deckhand: this host lacks (by Debian's names):$missing; install them with your package manager" >&2
	exit 1
fi
if [ "$(id -u)" -ne 0 ]; then
	echo "deckhand: these Debian packages are missing:$missing; run as root: apt-get install$missing" >&2
	exit 1
fi
echo "deckhand: installing$missing"
log=$(mktemp)
trap 'rm -f "$log"' EXIT
# Only an outdated package list makes a first attempt fail, so it is renewed only then.
install() {
	# shellcheck disable=SC2086 # The words of the list are the packages.
	DEBIAN_FRONTEND=noninteractive apt-get install -y --no-install-recommends $missing
}
if ! install >"$log" 2>&1 && ! { apt-get update >"$log" 2>&1 && install >"$log" 2>&1; }; then
	echo "deckhand: apt-get couldn't install$missing:" >&2
	tail -n 5 "$log" >&2
	exit 1
fi
