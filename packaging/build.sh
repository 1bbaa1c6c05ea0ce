#!/bin/sh
# Builds a Debian package of deckhand, a tar.gz of the same tree, and their SHA256SUMS into a
# directory. The same commit and tools give the same bytes.
#
#	packaging/build.sh BIN OUT
#
# BIN has the runtime's programs and the pause image: `make tools images`. What may be set:
#	VERSION            such as v1.2.3, instead of what git says
#	SOURCE_DATE_EPOCH  the time of all files, instead of the commit's
#	FAST               if it isn't empty, hardly anything is compressed
set -eu
umask 022
export LC_ALL=C TZ=UTC

bin=$(realpath "$1")
mkdir -p "$2"
out=$(realpath "$2")
cd "$(dirname "$0")/.."
module=github.com/deckhand-node/deckhand

# version is the newest tag with what came after it: v1.2.3, or v1.2.3+4.gabc1234.
version() {
	if tag=$(git describe --tags --match 'v[0-9]*' 2>/dev/null); then
		echo "$tag" | sed -E 's/-([0-9]+)-(g[0-9a-f]+)$/+\1.\2/'
	else
		git log -1 --format=v0.0.0+%cd.g%h --abbrev=12 --date=format-local:%Y%m%d%H%M%S
	fi
}
VERSION=${VERSION:-$(version)}
SOURCE_DATE_EPOCH=${SOURCE_DATE_EPOCH:-$(git log -1 --format=%ct)}
export SOURCE_DATE_EPOCH
# What comes before a release (v1.2.3-rc.1) sorts before it (1.2.3~rc.1).
debian=$(echo "${VERSION#v}" | tr - '~')
arch=$(dpkg --print-architecture)
name=deckhand_${debian}_$arch
echo "deckhand: building $name"

xz=xz
gzip='gzip -n'
if [ -n "${FAST:-}" ]; then
	xz=none
	gzip='gzip -n -1'
fi

stage=$(mktemp -d)
trap 'rm -rf "$stage"' EXIT
tree=$stage/$name
mkdir "$tree"

mkdir -p "$tree/usr/bin" "$tree/usr/libexec/deckhand/images" "$tree/etc/deckhand/manifests"
deckhand=$tree/usr/bin/deckhand
# At an address of its own in each run, where Go's linker can do that by itself; the C library that runc needs loads it.
case $(go env GOARCH) in amd64 | arm64 | loong64 | ppc64le | s390x) mode=pie ;; *) mode=default ;; esac
# The tag: see the Makefile.
CGO_ENABLED=0 go build -buildmode="$mode" -tags grpcnotrace -trimpath -buildvcs=auto -ldflags "-s -w -X $module/internal/kit/buildinfo.version=$VERSION" -o "$deckhand" ./cmd/deckhand
libexec=$tree/usr/libexec/deckhand
set -- "$deckhand"
for program in containerd containerd-shim-runc-v2 runc bridge host-local loopback portmap; do
	install -m 0755 "$bin/$program" "$libexec"
	set -- "$@" "$libexec/$program"
done
install -m 0644 "$bin/images/pause.tar" "$libexec/images"

install -D -m 0644 packaging/deckhand.service "$tree/usr/lib/systemd/system/deckhand.service"
install -D -m 0644 packaging/deckhand.default "$tree/etc/default/deckhand"
install -m 0644 packaging/config.yaml "$tree/etc/deckhand"

share=$tree/usr/share
install -D -m 0644 -t "$share/deckhand/examples" examples/*.yaml "$bin/images/web.tar"
mkdir -p "$share/bash-completion/completions" "$share/zsh/vendor-completions" "$share/fish/vendor_completions.d"
"$deckhand" completion bash >"$share/bash-completion/completions/deckhand"
"$deckhand" completion zsh >"$share/zsh/vendor-completions/_deckhand"
"$deckhand" completion fish >"$share/fish/vendor_completions.d/deckhand.fish"

doc=$share/doc/deckhand
install -D -m 0644 packaging/kubelet.service.d/20-deckhand.conf "$doc/examples/kubelet.service.d/20-deckhand.conf"
install -m 0644 README.md UPGRADING.md CHANGELOG.md ARCHITECTURE.md CONTRIBUTING.md SECURITY.md "$doc"
for linked in packaging/README.md test/conformance/README.md; do install -D -m 0644 "$linked" "$doc/$linked"; done
find docs -name '*.md' -exec install -D -m 0644 {} "$doc/{}" \;
{ cat packaging/debian/copyright && go run ./packaging/notices "$@"; } >"$doc/copyright"
maintainer=$(sed -n 's/^Maintainer: //p' packaging/debian/control)
gzip -9n >"$doc/changelog.gz" <<EOF
deckhand ($debian) unstable; urgency=medium

  * Built from commit $(git rev-parse HEAD 2>/dev/null || echo unknown).

 -- $maintainer  $(date -u -R -d "@$SOURCE_DATE_EPOCH")
EOF
find "$tree" -exec touch -h -d "@$SOURCE_DATE_EPOCH" {} +

# Before the package's control files are added, which aren't of the tree.
tar -C "$stage" --sort=name --owner=0 --group=0 --numeric-owner -I "$gzip" -cf "$out/$name.tar.gz" "$name"

# What runc, the only program with C in it, is linked to.
mkdir "$stage/debian"
printf 'Source: deckhand\n\nPackage: deckhand\nArchitecture: any\n' >"$stage/debian/control"
needs=$(cd "$stage" && dpkg-shlibdeps -O "$libexec/runc" 2>"$stage/shlibdeps") || { cat "$stage/shlibdeps" >&2; exit 1; }
size=$(find "$tree" -type f -printf '%s\n' | awk '{ kib += int(($1 + 1023) / 1024) } END { print kib }')

control=$tree/DEBIAN
mkdir "$control"
sed -e "s/@VERSION@/$debian/; s/@ARCH@/$arch/; s/@SIZE@/$size/; s/@SHLIBS@/${needs#shlibs:Depends=}/" packaging/debian/control >"$control/control"
install -m 0644 packaging/debian/conffiles "$control"
install -m 0755 packaging/debian/postinst packaging/debian/prerm packaging/debian/postrm "$control"
(cd "$tree" && find usr -type f | sort | xargs md5sum) >"$control/md5sums"
dpkg-deb --root-owner-group -Z"$xz" --build "$tree" "$out/$name.deb" >/dev/null

cd "$out"
sha256sum "$name.deb" "$name.tar.gz" >SHA256SUMS
cat SHA256SUMS
