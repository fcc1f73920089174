#!/bin/sh
# The first process of the machine: makes a root that can be written (this machine's tree under a tmpfs), configures it, and
# hands over to systemd. @COFS@ is the program under test, @CONTRIB@ the directory with its unit, @TEST@ the program that holds
# the cases, @CASES@ the one to run.
set -eu
export PATH=/usr/sbin:/usr/bin:/sbin:/bin LC_ALL=C.UTF-8
mount -n -t proc proc /proc
mount -n -t sysfs sys /sys
modules=@MODULES@/$(uname -r)/kernel/fs
insmod "$modules/overlayfs/overlay.ko"
insmod "$modules/fuse/fuse.ko"
insmod "$modules/autofs/autofs4.ko"
mount -n -t tmpfs tmp /mnt
mkdir /mnt/upper /mnt/work /mnt/root
mount -n -t overlay -o lowerdir=/,upperdir=/mnt/upper,workdir=/mnt/work root /mnt/root
root=/mnt/root

# What this machine is otherwise used for stays out, and what it is told of itself: it is no container.
rm -rf "$root"/etc/systemd/system/* "$root"/etc/init.d "$root"/etc/rc?.d "$root"/etc/systemd/system.conf.d "$root"/.dockerenv "$root"/run/.containerenv
rm -rf "$root"/etc/fstab "$root"/etc/cofs "$root"/srv "$root"/data
mkdir -p "$root"/etc/systemd/system/multi-user.target.wants "$root"/etc/systemd/system.conf.d "$root"/etc/cofs "$root"/data \
    "$root"/srv/service "$root"/srv/fstab "$root"/srv/over "$root"/srv/kept "$root"/srv/none
for unit in systemd-udevd.service systemd-udev-trigger.service systemd-udevd-control.socket systemd-udevd-kernel.socket \
    systemd-binfmt.service proc-sys-fs-binfmt_misc.automount proc-sys-fs-binfmt_misc.mount systemd-update-utmp.service \
    systemd-update-utmp-runlevel.service systemd-sysusers.service systemd-tmpfiles-setup.service \
    systemd-tmpfiles-setup-dev.service systemd-tmpfiles-setup-dev-early.service systemd-tmpfiles-clean.timer \
    systemd-random-seed.service systemd-timesyncd.service systemd-resolved.service systemd-networkd.service \
    systemd-networkd.socket systemd-modules-load.service systemd-sysctl.service systemd-journal-flush.service \
    systemd-logind.service systemd-user-sessions.service systemd-hwdb-update.service systemd-machine-id-commit.service \
    systemd-firstboot.service ldconfig.service dbus.service dbus.socket getty.target tmp.mount dev-mqueue.mount \
    dev-hugepages.mount sys-kernel-debug.mount sys-kernel-tracing.mount sys-kernel-config.mount \
    'modprobe@.service' systemd-ask-password-wall.path systemd-ask-password-console.path; do
    ln -s /dev/null "$root/etc/systemd/system/$unit"
done
cat >"$root/etc/systemd/system.conf.d/test.conf" <<END
[Manager]
LogColor=no
# The cases start and stop units more often than people do.
DefaultStartLimitIntervalSec=0
ShowStatus=yes
END
ln -s /lib/systemd/system/multi-user.target "$root/etc/systemd/system/default.target"

# cofs as the manual has it installed.
rm -f "$root"/usr/bin/cofs "$root"/usr/sbin/mount.fuse.cofs "$root"/usr/sbin/umount.fuse.cofs
ln -s "@COFS@" "$root/usr/bin/cofs"
ln -s /usr/bin/cofs "$root/usr/sbin/mount.fuse.cofs"
ln -s /usr/bin/cofs "$root/usr/sbin/umount.fuse.cofs"
cp "@CONTRIB@/cofs@.service" "$root/etc/systemd/system/"
echo 'STORE=/data/service' >"$root/etc/cofs/srv-service.conf"
printf 'STORE=/data/over\nOPTIONS=allow_other,noatime\n' >"$root/etc/cofs/srv-over.conf"
printf 'STORE=/data/kept\nOPTIONS=supervise\n' >"$root/etc/cofs/srv-kept.conf"
echo 'STORE=/data/none' >"$root/etc/cofs/srv-none.conf"
cat >"$root/etc/fstab" <<END
/data/fstab /srv/fstab fuse.cofs allow_other,noatime 0 0
/data/auto  /srv/auto  fuse.cofs noauto,x-systemd.automount 0 0
END

# The cases, once all else has been started.
cat >"$root/etc/systemd/system/cases.service" <<END
[Unit]
Description=The cases
After=multi-user.target
SuccessAction=poweroff
FailureAction=poweroff
[Service]
Type=oneshot
Environment=LC_ALL=C.UTF-8 PATH=$PATH SYSTEMD_PAGER=cat SYSTEMD_COLORS=0
ExecStart=@TEST@ --exact @CASES@ --ignored --nocapture
StandardOutput=tty
StandardError=tty
TTYPath=/dev/tty0
TimeoutStartSec=infinity
END
ln -s /etc/systemd/system/cases.service "$root/etc/systemd/system/multi-user.target.wants/"
# Where a line of fstab does not succeed there is no shell to be waited for.
cat >"$root/etc/systemd/system/emergency.service" <<END
[Unit]
DefaultDependencies=no
[Service]
Type=oneshot
ExecStart=sh -c "journalctl --no-pager | tail -n 40; systemctl poweroff --no-block"
StandardOutput=tty
TTYPath=/dev/tty0
END
for unit in @ENABLED@; do ln -s '/etc/systemd/system/cofs@.service' "$root/etc/systemd/system/multi-user.target.wants/$unit"; done

mount -n -t ext4 /dev/ubda "$root/data"
for tree in proc sys dev; do mount -n --move "/$tree" "$root/$tree" || [ "$tree" = dev ]; done
cd "$root"
exec switch_root "$root" /lib/systemd/systemd
