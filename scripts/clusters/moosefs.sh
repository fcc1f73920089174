# shellcheck shell=bash
# MooseFS: a master and one chunk server, one copy of everything.
#
# Met: the chunk server refuses 127.0.0.1; a size after the path in the list of disks made
# the volume full at once; with one chunk server files must be told to have one copy.

export CLUSTER_PACKAGES=(moosefs-master moosefs-chunkserver moosefs-client moosefs-cli)
export CLUSTER_NAME=MooseFS
export CLUSTER_SLOWNESS=1

cluster_version() { dpkg-query -W -f '${Version}' moosefs-master | sed 's/-.*//'; }

cluster_start() {
    local dir=$1 host=$3
    mkdir -p "$dir/master" "$dir/chunkserver" "$dir/disk"
    cp /var/lib/mfs/metadata.mfs.empty "$dir/master/metadata.mfs" 2>/dev/null ||
        printf 'MFSM NEW' >"$dir/master/metadata.mfs"
    : >"$dir/topology.cfg"
    printf '* / rw,alldirs,admin,maproot=0:0\n* . rw\n' >"$dir/exports.cfg"
    printf '%s\n' "$dir/disk" >"$dir/disks.cfg"
    cat >"$dir/master.cfg" <<EOF
WORKING_USER = root
WORKING_GROUP = root
DATA_PATH = $dir/master
EXPORTS_FILENAME = $dir/exports.cfg
TOPOLOGY_FILENAME = $dir/topology.cfg
MATOML_LISTEN_HOST = $host
MATOCS_LISTEN_HOST = $host
MATOCL_LISTEN_HOST = $host
NICE_LEVEL = 0
DISABLE_OOM_KILLER = 0
EOF
    cat >"$dir/chunkserver.cfg" <<EOF
WORKING_USER = root
WORKING_GROUP = root
DATA_PATH = $dir/chunkserver
HDD_CONF_FILENAME = $dir/disks.cfg
MASTER_HOST = $host
BIND_HOST = $host
CSSERV_LISTEN_HOST = $host
NICE_LEVEL = 0
DISABLE_OOM_KILLER = 0
EOF
    mfsmaster -c "$dir/master.cfg" start
    mfschunkserver -c "$dir/chunkserver.cfg" start
}

cluster_mount() {
    local host=$3 mnt=$4
    mfsmount "$mnt" -H "$host"
    patiently 30 stat "$mnt"
    mfssetgoal -r 1 "$mnt"
    # Names can be made before the chunk server has told what room it has.
    patiently 60 has_room "$mnt"
}

has_room() { (($(stat -f -c %a "$1") > 0)); }

cluster_stop() {
    mfschunkserver -c "$1/chunkserver.cfg" stop
    mfsmaster -c "$1/master.cfg" stop
}
