# shellcheck shell=bash
# The configurations of tests/README.md as directories: loop images, volumes, mounts.
#
# `config_up` leaves the directory under test in $MNT; `config_down` takes all of it away again.

URING_SWITCH=/sys/module/fuse/parameters/enable_uring
COFS=${COFS_TEST_BINARY:-${CARGO_TARGET_DIR:-target}/release/cofs} # another one can be put to the test

# What a configuration cannot have on this machine; nothing if it can.
config_lacks() {
    if ((EUID != 0)); then
        echo "loop mounts, device nodes and several users need root"
    elif [[ ! -e /dev/loop-control ]]; then
        echo "no loop devices"
    elif [[ $1 = native:* ]]; then
        :
    elif [[ ! -e /dev/fuse ]]; then
        echo "no /dev/fuse"
    elif [[ $1 = *:uring && ! -w $URING_SWITCH ]]; then
        echo "this kernel has no FUSE over io_uring"
    elif ! "$COFS" mount --help 2>/dev/null | grep -q Usage; then
        echo "cofs has no verb mount yet"
    fi
}

# image_up ext4|xfs: a fresh file system on a loop device, mounted at $WORK/below.
image_up() {
    local image=$WORK/$1.img device
    rm -f "$image"
    truncate -s 6G "$image"
    case $1 in
    ext4) mkfs.ext4 -q -F -E lazy_itable_init=1,lazy_journal_init=1 "$image" ;;
    xfs) mkfs.xfs -q -f "$image" ;;
    esac
    device=$(losetup --find --show "$image")
    LOOPS+=("$device")
    BELOW=$WORK/below
    mkdir -p "$BELOW"
    mount "$device" "$BELOW"
    MOUNTS+=("$BELOW")
    chmod 755 "$BELOW" "$WORK"
}

image_down() {
    local device
    device=$(findmnt -n -o SOURCE "$BELOW")
    umount "$BELOW"
    losetup -d "$device"
    forget MOUNTS "$BELOW"
    forget LOOPS "$device"
    rm -f "$WORK"/*.img
}

# forget ARRAY ITEM: removes the item from the array of that name.
forget() {
    local -n array=$1
    local item kept=()
    for item in "${array[@]}"; do [[ $item = "$2" ]] || kept+=("$item"); done
    array=("${kept[@]}")
}

config_up() {
    IFS=: read -r KIND DATA_PATH TRANSPORT <<<"$1"
    if [[ $KIND = native ]]; then
        image_up "$DATA_PATH"
        MNT=$BELOW/top
        mkdir -p "$MNT"
        return
    fi
    image_up "$KIND"
    STORE=$BELOW/store
    MNT=$WORK/mnt
    mkdir -p "$MNT"
    if [[ $TRANSPORT = uring ]]; then
        URING_WAS=${URING_WAS:-$(cat "$URING_SWITCH")}
        echo Y >"$URING_SWITCH"
    fi
    "$COFS" format "$STORE" >>"$LOGS/daemon.log" 2>&1
    volume_up
}

# Mounts $STORE at $MNT with a daemon of which we know the process id, and waits until it serves.
volume_up() {
    "$COFS" mount "$STORE" "$MNT" -o "$(mount_options)" \
        >>"$LOGS/daemon.log" 2>&1 </dev/null &
    DAEMON=$!
    DAEMONS+=("$DAEMON")
    MOUNTS+=("$MNT")
    serves "$DAEMON" "$MNT" && return 0
    fail "${CONFIG}/mount" "does not serve; $LOGS/daemon.log"
    tail -n 20 "$LOGS/daemon.log"
    return 1
}

mount_options() {
    local passthrough=off users=allow_other,
    if [[ $DATA_PATH = passthrough ]]; then passthrough=on; fi
    if [[ -n ${ALONE:-} ]]; then users=; fi
    echo "${users}passthrough=$passthrough,transport=$TRANSPORT${MORE_OPTIONS:+,$MORE_OPTIONS}"
}

volume_down() {
    local n
    # What a program left running in the background may still be at its end.
    for ((n = 0; n < 50; n++)); do
        ! umount "$MNT" 2>/dev/null || break
        sleep 0.1
    done
    if mountpoint -q "$MNT"; then
        fail "$CONFIG/${1:-}unmount" "still busy after 5 s"
        umount -l "$MNT"
    fi
    forget MOUNTS "$MNT"
    if ! wait_gone "$DAEMON" 300; then
        fail "$CONFIG/${1:-}unmount" "the daemon still ran 30 s after the unmount"
        kill -KILL "$DAEMON"
    fi
    wait "$DAEMON" 2>/dev/null || true
    forget DAEMONS "$DAEMON"
}

# Takes the mount away and makes it anew, as a reboot would.
remount() {
    if [[ $KIND = native ]]; then
        local device
        device=$(findmnt -n -o SOURCE "$BELOW")
        umount "$BELOW"
        mount "$device" "$BELOW"
    else
        volume_down
        volume_up
    fi
}

config_down() {
    [[ $KIND = native ]] || volume_down
    image_down
}

# After a suite: a clean unmount, fsck finds nothing, and the volume mounts again.
check_volume() {
    [[ $KIND = native ]] && return 0
    volume_down "$1/"
    run_case_within 120 "$CONFIG/$1/fsck" "$COFS" fsck "$STORE"
    volume_up
}

run_mount_suites() {
    local lacks name
    for CONFIG in "${CONFIGS[@]}"; do
        lacks=$(config_lacks "$CONFIG")
        if [[ -n $lacks ]]; then
            skip "$CONFIG" "$lacks"
            continue
        fi
        if ! config_up "$CONFIG"; then
            config_down || true
            continue
        fi
        for name in "${SUITES_MOUNT[@]}" "${SUITES_CRASH[@]}"; do
            wanted "$name" && declare -F "suite_$name" >/dev/null || continue
            if [[ $KIND = native && " ${SUITES_CRASH[*]} " = *" $name "* ]]; then continue; fi
            "suite_$name"
            check_volume "$name" || break
        done
        config_down
    done
}
