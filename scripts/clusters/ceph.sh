# shellcheck shell=bash
# CephFS: one monitor, one manager, one metadata server, one OSD (BlueStore on a sparse file), clients by ceph-fuse.
#
# Met: `bluestore block path` must be unset and only the size given; making a pool hangs without an OSD; each ceph-fuse
# needs a pid file of its own, else it fails and what follows writes into the bare directory.

export CLUSTER_PACKAGES=(ceph-mon ceph-mgr ceph-mds ceph-osd ceph-fuse ceph-common)
export CLUSTER_NAME=CephFS
export CLUSTER_SLOWNESS=4

cluster_version() { ceph --version | awk '{ print $3 }'; }

# Every call of Ceph's with this cluster's configuration, and an end.
ceph_told() { timeout 60 ceph --connect-timeout 20 -c "$CEPH_CONF" "$@"; }

cluster_start() {
    local dir=$1 host=$3 fsid
    CEPH_CONF=$dir/ceph.conf
    mkdir -p "$dir"/{mon,mgr,mds,osd,run,log}
    fsid=$(cat /proc/sys/kernel/random/uuid)
    cat >"$CEPH_CONF" <<EOF
[global]
fsid = $fsid
mon host = v2:$host:3300,v1:$host:6789
mon initial members = a
public addr = $host
cluster addr = $host
ms bind ipv6 = false
auth cluster required = none
auth service required = none
auth client required = none
osd pool default size = 1
osd pool default min size = 1
osd pool default pg num = 16
osd crush chooseleaf type = 0
mon allow pool size one = true
mon warn on pool no redundancy = false
run dir = $dir/run
admin socket = $dir/run/\$cluster-\$name.\$pid.asok
log file = $dir/log/\$name.log
keyring = $dir/keyring
pid file = $dir/run/\$type.\$id.pid
crash dir = $dir/run
[mon]
mon data = $dir/mon
auth allow insecure global id reclaim = false
[mgr]
mgr data = $dir/mgr
mgr initial modules =
[mds]
mds data = $dir/mds
[osd]
osd data = $dir/osd
osd objectstore = bluestore
bluestore block size = 17179869184
osd memory target = 2147483648
EOF
    ceph-authtool --create-keyring "$dir/keyring" --gen-key -n mon. --cap mon 'allow *'
    ceph-authtool "$dir/keyring" --gen-key -n client.admin --cap mon 'allow *' --cap osd 'allow *' --cap mds 'allow *' --cap mgr 'allow *'
    monmaptool --create --clobber --fsid "$fsid" --addv a "[v2:$host:3300,v1:$host:6789]" "$dir/monmap"
    ceph-mon -c "$CEPH_CONF" --mkfs -i a --monmap "$dir/monmap" --keyring "$dir/keyring"
    ceph-mon -c "$CEPH_CONF" -i a
    patiently 60 ceph_told status
    ceph-mgr -c "$CEPH_CONF" -i x
    ceph_told osd create
    ceph-osd -c "$CEPH_CONF" -i 0 --mkfs --osd-uuid "$(cat /proc/sys/kernel/random/uuid)"
    ceph_told osd crush add osd.0 1.0 root=default host="$(hostname)"
    ceph-osd -c "$CEPH_CONF" -i 0
    patiently 60 osd_is_up
    ceph_told osd pool create cephfs_meta 16
    ceph_told osd pool create cephfs_data 16
    ceph_told fs new cephfs cephfs_meta cephfs_data
    ceph-mds -c "$CEPH_CONF" -i a
    patiently 60 mds_is_active
}

osd_is_up() { ceph_told osd stat | grep -q '1 up'; }
mds_is_active() { ceph_told mds stat | grep -q 'up:active'; }

cluster_mount() {
    local dir=$1 mnt=$4
    ceph-fuse -c "$dir/ceph.conf" -n client.admin --pid-file="$dir/run/client-${mnt##*/}.pid" "$mnt"
    patiently 30 mountpoint -q "$mnt"
    patiently 30 touch "$mnt/.answers"
}

cluster_stop() {
    # Clients stay after they are unmounted, and then wait for servers for ever.
    end_of "$1"/run/client-*.pid
    end_of "$1"/run/{mds.a,osd.0,mgr.x,mon.a}.pid
}
