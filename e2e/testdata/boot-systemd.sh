#!/bin/sh
# Becomes the systemd of this machine as process 1 of the namespaces that the caller has made (pid, mount, uts, ipc), on a root
# whose changes go to memory. $1 is an empty folder; what is in $1/shared is /shared inside.
set -eu
work=$1 root=$1/root
mount --make-rprivate /
mkdir -p "$root" "$work/memory" "$work/shared"
mount -t tmpfs memory "$work/memory"
mkdir "$work/memory/upper" "$work/memory/work"
mount -t overlay root -o "lowerdir=/,upperdir=$work/memory/upper,workdir=$work/memory/work" "$root"

for dir in run tmp dev; do mount -t tmpfs "$dir" "$root/$dir"; done
chmod 1777 "$root/tmp"
mount -t proc proc "$root/proc"
mount -t sysfs sysfs "$root/sys" 2>/dev/null || mount --rbind /sys "$root/sys"
mount -t cgroup2 cgroup2 "$root/sys/fs/cgroup"
for node in null zero full random urandom tty; do
  : >"$root/dev/$node"
  mount --bind "/dev/$node" "$root/dev/$node"
done
mkdir "$root/dev/pts" "$root/dev/shm"
mount -t devpts devpts "$root/dev/pts" -o newinstance,ptmxmode=0666
ln -s pts/ptmx "$root/dev/ptmx"
ln -s /proc/self/fd "$root/dev/fd"
mkdir -p "$root/shared"
mount --bind "$work/shared" "$root/shared"

# A machine without devices, network and logins: their units would only fail.
units=$root/etc/systemd/system
mkdir -p "$units"
: >"$root/etc/machine-id"
ln -sf /lib/systemd/system/basic.target "$units/default.target"
for unit in systemd-udevd.service systemd-udevd-control.socket systemd-udevd-kernel.socket systemd-udev-trigger.service \
  systemd-networkd.service systemd-timesyncd.service systemd-logind.service systemd-modules-load.service systemd-sysctl.service \
  systemd-remount-fs.service dev-hugepages.mount sys-kernel-debug.mount sys-kernel-tracing.mount apparmor.service getty.target \
  systemd-networkd-wait-online.service; do
  ln -sf /dev/null "$units/$unit"
done
exec chroot "$root" /usr/bin/env -i container=other PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin \
  /lib/systemd/systemd --system --log-target=journal --show-status=no
