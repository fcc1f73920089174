# shellcheck shell=bash
# GlusterFS: one volume distributed over two bricks, one server.
#
# Met: its command line refuses localhost and takes the host's name, which must resolve; after `volume stop` a
# client's mount succeeds and every call fails.

export CLUSTER_PACKAGES=(glusterfs-server glusterfs-client)
export CLUSTER_NAME=GlusterFS
export CLUSTER_SLOWNESS=1

cluster_version() { glusterd --version | awk 'NR == 1 { print $2 }'; }

# cluster_start DIR HOST ADDRESS: on directories in DIR, on the host of that name and address.
cluster_start() {
    local dir=$1 host=$2
    mkdir -p "$dir/state" "$dir/brick1" "$dir/brick2" /var/run/gluster /var/log/glusterfs
    cat >"$dir/glusterd.vol" <<EOF
volume management
    type mgmt/glusterd
    option working-directory $dir/state
    option transport-type socket
    option transport.socket.listen-port 24007
    option ping-timeout 0
    option event-threads 1
    option max-port 60999
end-volume
EOF
    glusterd --volfile "$dir/glusterd.vol" --pid-file "$dir/glusterd.pid" --log-file "$dir/glusterd.log"
    patiently 30 gluster --mode=script volume list
    gluster --mode=script volume create gv transport tcp "$host:$dir/brick1" "$host:$dir/brick2" force
    gluster --mode=script volume start gv
}

# cluster_mount DIR HOST ADDRESS MNT: one more client.
cluster_mount() {
    local dir=$1 host=$2 mnt=$4
    glusterfs --volfile-server="$host" --volfile-id=gv --log-file="$dir/client-${mnt##*/}.log" \
        --pid-file="$dir/client-${mnt##*/}.pid" "$mnt"
    # Until its bricks answer there is a mount and every call fails.
    patiently 30 stat "$mnt"
    patiently 30 touch "$mnt/.answers"
}

cluster_stop() {
    gluster --mode=script volume stop gv force
    end_of "$1/glusterd.pid"
}
