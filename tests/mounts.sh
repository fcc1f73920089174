# shellcheck shell=bash
# The configurations of tests/README.md as directories: loop images, volumes, mounts.
#
# `config_up` leaves the directory under test in $MNT; `config_down` takes all of it away again.

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
    elif [[ $1 = *:uring && ! -e $URING_SWITCH ]]; then
        echo "this kernel has no FUSE over io_uring"
    elif [[ $1 = *:uring && ! -w $URING_SWITCH && $(<"$URING_SWITCH") != Y ]]; then
        echo "FUSE over io_uring is off, and may not be switched on"
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
    "$COFS" format "$STORE" >>"$LOGS/daemon.log" 2>&1
    volume_up
}

# Mounts $STORE at $MNT with a daemon of which we know the process id, and waits until it serves, by the transport that it should. Nobody watches
# over it, so that its death is seen: another would serve within a moment.
volume_up() {
    if [[ $TRANSPORT = uring ]]; then uring_for_tests; fi
    "$COFS" mount "$STORE" "$MNT" -o "norestart,$(mount_options)" \
        >>"$LOGS/daemon.log" 2>&1 </dev/null &
    DAEMON=$!
    DAEMONS+=("$DAEMON")
    MOUNTS+=("$MNT")
    if serves "$DAEMON" "$MNT"; then
        serves_by "$TRANSPORT" "${CONFIG}/mount" "$COFS" status "$MNT"
        return
    fi
    fail "${CONFIG}/mount" "does not serve; $LOGS/daemon.log"
    tail -n 20 "$LOGS/daemon.log"
    return 1
}

# serves_by TRANSPORT NAME COFS status MNT: whether it is that one which serves. Where io_uring cannot be had a mount goes by /dev/fuse, and what is
# tried over io_uring would be tried over that once more: then NAME has failed. For a moment a mount serves and does not know how.
serves_by() {
    local transport=$1 name=$2 n how
    shift 2
    for ((n = 0; n < 100; n++)); do
        how=$("$@" --output json | jq -r '.mount | select(. != null) | "\(.transport): \(.transport_reason)"') || break
        if [[ $how = "$transport: "* ]]; then return 0; fi
        if [[ -n $how ]]; then break; fi
        sleep 0.1
    done
    fail "$name" "not served by $transport, but by ${how:-nobody knows what}"
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
