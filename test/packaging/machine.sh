# Makes of this process's namespaces a machine: a Debian that is this host's, with nothing of it changed and
# nothing running, in which systemd starts. DIR is for what is changed, on a file system that overlayfs can have
# its upper layer on. CGROUPS are the hierarchies, as "KIND OPTIONS PATH" lines.
set -eu
dir=$1 cgroups=$2 name=$3
mkdir -p "$dir/root" "$dir/lib"
for path in etc usr var; do
	mkdir "$dir/$path" "$dir/$path.work"
	mount -t overlay overlay -o "lowerdir=/$path,upperdir=$dir/$path,workdir=$dir/$path.work" "/$path"
done
mount --bind "$dir/root" /root
# containerd keeps images in overlays of its own, which can't be in one of ours: /var/lib itself is none.
rm -rf /var/log/pods /var/log/containers /var/lib/cni /var/lib/deckhand
for path in /var/lib/*/; do
	mkdir "$dir/lib/$(basename "$path")"
	mount --bind "$path" "$dir/lib/$(basename "$path")"
done
mount --rbind "$dir/lib" /var/lib

mount -t sysfs sysfs /sys
mount -t tmpfs -o mode=0755 tmpfs /sys/fs/cgroup
while read -r kind options path; do
	mkdir -p "$path"
	mount -t "$kind" -o "$options" "$kind" "$path"
done <"$cgroups"

# Of the host's units those alone that every system has.
units=/usr/lib/systemd/system
mkdir "$dir/units"
for unit in basic sysinit multi-user network network-online local-fs sockets timers paths slices shutdown umount final; do
	cp "$units/$unit.target" "$dir/units"
done
cp "$units/systemd-journald.service" "$units/systemd-journald.socket" "$units/systemd-journald-dev-log.socket" "$dir/units"
mount -t tmpfs -o mode=0755 tmpfs "$units"
cp "$dir"/units/* "$units"
mkdir "$units/sysinit.target.wants"
ln -s ../systemd-journald.service "$units/sysinit.target.wants"
mount -t tmpfs -o mode=0755 tmpfs "$units-generators"
mount -t tmpfs -o mode=0755 tmpfs /etc/systemd/system
# How full the host's disk is, isn't the documents' matter.
mkdir /etc/systemd/system/deckhand.service.d
printf '[Service]\nEnvironment=DECKHAND_ARGS=--image-gc-high-threshold=100\n' >/etc/systemd/system/deckhand.service.d/disk.conf
mount -t tmpfs -o mode=0755 tmpfs /run
mount -t tmpfs -o mode=1777 tmpfs /tmp
mount -t tmpfs -o mode=0755 tmpfs /srv

ip link set lo up
ip address add 192.0.2.10/32 dev lo
echo "192.0.2.10 registry.example.com" >>/etc/hosts
echo "$name" >/etc/hostname
hostname "$name"
exec env -i PATH=/usr/sbin:/usr/bin container=deckhand-test /usr/lib/systemd/systemd --system --unit=multi-user.target --log-target=console --show-status=0
