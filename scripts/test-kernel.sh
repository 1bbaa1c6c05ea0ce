#!/bin/sh
# Puts the kernel that test/numa boots, Debian's for clouds, into a directory. It isn't installed: that would make it a
# kernel of this machine.
set -eu

dir=$1
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
chmod 755 "$work"
cd "$work"
kernel() { apt-cache depends --important linux-image-cloud-amd64 | sed -n 's/.*Depends: \(linux-image-.*\)/\1/p'; }
fetch() { package=$(kernel) && [ -n "$package" ] && apt-get download -q "$package"; }
# Only an outdated package list makes a first attempt fail, so it is renewed only then.
if ! fetch >log 2>&1 && ! { apt-get update >log 2>&1 && fetch >log 2>&1; }; then
	echo "deckhand: can't fetch Debian's package linux-image-cloud-amd64:" >&2
	tail -n 5 log >&2
	exit 1
fi
dpkg-deb --fsys-tarfile linux-image-*.deb | tar -xf - --wildcards './boot/vmlinuz-*'
mkdir -p "$dir"
mv boot/vmlinuz-* "$dir/vmlinuz"
