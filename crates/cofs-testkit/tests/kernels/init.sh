#!/bin/sh
# The first process of the machine: the disk, FUSE, and the cases. @TEST@ is the program that holds them, @ENVIRONMENT@ what they must know.
export PATH=/usr/sbin:/usr/bin:/sbin:/bin LC_ALL=C.UTF-8 TMPDIR=/mnt/disk/tmp @ENVIRONMENT@
mount -t proc proc /proc && mount -t sysfs sys /sys
insmod "@MODULES@/$(uname -r)/kernel/fs/fuse/fuse.ko" && chmod 666 /dev/fuse
mount -t tmpfs tmp /var/tmp # what tests of other users' mounts work in
mount -t tmpfs tmp /mnt && mkdir /mnt/disk /mnt/volume && mount /dev/ubda /mnt/disk && mkdir -p -m 1777 /mnt/disk/tmp
echo "kernel $(uname -r)"
@TEST@ --exact cases::in_the_machine --ignored --nocapture
umount /mnt/disk && echo "the disk is unmounted"
echo o >/proc/sysrq-trigger
sleep 100
