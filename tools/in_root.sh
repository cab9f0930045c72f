#!/bin/sh
# Runs a command in a container's root as an engine would: read-only, with /proc, /dev, /etc/hosts, and empty /tmp and
# /run/dip of its own, as the image's user. To be run in a mount namespace of its own, which unshare --mount makes:
#
#   in_root.sh ROOT USER:GROUP FOLDER CPUINFO COMMAND...     CPUINFO: a file to show as /proc/cpuinfo, or -
set -eu
root=$1 user=$2 folder=$3 cpuinfo=$4
shift 4
touch "$root/etc/hosts"
mount --bind "$root" "$root"
mount -o remount,bind,ro "$root"
mount --bind /etc/hosts "$root/etc/hosts"
mount -t proc -o nosuid,nodev,noexec proc "$root/proc"
if [ "$cpuinfo" != - ]; then mount --bind "$cpuinfo" "$root/proc/cpuinfo"; fi
mount -t tmpfs -o mode=755 tmpfs "$root/dev"
for device in full null random urandom zero; do
    touch "$root/dev/$device"
    mount --bind "/dev/$device" "$root/dev/$device"
done
mkdir "$root/dev/shm"
mount -t tmpfs -o mode=1777 tmpfs "$root/dev/shm"
mount -t tmpfs -o mode=1777 tmpfs "$root/tmp"
if [ -d "$root/run/dip" ]; then mount -t tmpfs -o "uid=${user%:*},gid=${user#*:},mode=0750" tmpfs "$root/run/dip"; fi
exec chroot --userspec="$user" "$root" /usr/bin/env --ignore-environment --chdir "$folder" "$@"
