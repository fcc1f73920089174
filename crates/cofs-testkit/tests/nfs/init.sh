#!/bin/sh
# The first process of the machine: an NFS server of a directory on its disk, and the cases. @COFS@ is the program under test, @TEST@ the
# program that holds the cases, of which the first @ROUNDS@ are run.
export PATH=/usr/sbin:/usr/bin:/sbin:/bin LC_ALL=C.UTF-8
mount -t proc proc /proc && mount -t sysfs sys /sys
modules=@MODULES@/$(uname -r)/kernel
for module in fs/fuse/fuse fs/netfs/netfs fs/fscache/fscache net/sunrpc/sunrpc fs/nfs_common/grace fs/lockd/lockd fs/nfs/nfs \
    net/dns_resolver/dns_resolver fs/nfs/nfsv4 fs/nfs_common/nfs_acl lib/oid_registry net/sunrpc/auth_gss/auth_rpcgss fs/nfsd/nfsd; do
    insmod "$modules/$module.ko"
done
ip link set lo up
mount -t tmpfs tmp /mnt && mkdir /mnt/disk /mnt/nfs /mnt/volume /mnt/clients && mount /dev/ubda /mnt/disk

# How the server starts, now and where a case restarts it. No version 3, which wants a portmapper.
cat >/mnt/serve <<'END'
echo tcp 2049 >/proc/fs/nfsd/portlist
echo 4 >/proc/fs/nfsd/threads
END
# What mountd would tell the server when asked: that this machine may have the export (a directory on the disk, or the one that is named) with
# `fsid=0` (its flags: no_subtree_check, fsid, insecure). Until it is told, as for a moment after each start, it answers nobody.
cat >/mnt/export <<'END'
echo "nfsd 127.0.0.1 2147483647 here" >/proc/net/rpc/auth.unix.ip/channel
echo "here ${1:-/mnt/disk/export} 2147483647 9218 65534 65534 0" >/proc/net/rpc/nfsd.export/channel
printf '%s\n' "here 1 \\x00000000 2147483647 ${1:-/mnt/disk/export}" >/proc/net/rpc/nfsd.fh/channel
END
# The server holds what it exports until it is told this.
cat >/mnt/withdraw <<'END'
for cache in nfsd.fh nfsd.export auth.unix.ip; do echo $(($(date +%s) + 1)) >"/proc/net/rpc/$cache/flush"; done
sleep 0.2
END
mountpoint -q /proc/fs/nfsd || mount -t nfsd nfsd /proc/fs/nfsd
echo -3 >/proc/fs/nfsd/versions
echo /mnt/clients >/proc/fs/nfsd/nfsv4recoverydir
sh /mnt/export
sh /mnt/serve
# Nobody has anything to reclaim.
echo Y >/proc/fs/nfsd/v4_end_grace

COFS_TEST_BINARY=@COFS@ COFS_TEST_ROUNDS=@ROUNDS@ @TEST@ --exact cases::in_the_machine --ignored --nocapture
echo 0 >/proc/fs/nfsd/threads
sh /mnt/withdraw
umount /mnt/disk && echo "the disk is unmounted"
echo o >/proc/sysrq-trigger
sleep 100
