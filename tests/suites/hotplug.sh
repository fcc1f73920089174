# shellcheck shell=bash
# A CPU that goes and comes back under load, with the mount's workers pinned to CPUs or not. Long form only: it concerns all of the
# machine. Whatever happens, the CPU is online again afterwards.

HOTPLUG_CPU=1
HOTPLUG_SWITCH=/sys/devices/system/cpu/cpu$HOTPLUG_CPU/online
HOTPLUG_ROUNDS=20
HOTPLUG_POOL=()

suite_hotplug() {
    ((LONG)) || return 0
    # Once for each transport: what lies below knows nothing of CPUs.
    [[ $CONFIG = ext4:passthrough:* ]] || return 0
    if [[ ! -w $HOTPLUG_SWITCH || $(<"$HOTPLUG_SWITCH") != 1 ]]; then
        skip "$CONFIG/hotplug" "no CPU that could be taken offline"
        return 0
    fi
    HOTPLUG_LOAD=() HOTPLUG_SERVES='' HOTPLUG_NULL=''
    run_case "$CONFIG/hotplug/load" hotplug_load
    run_case "$CONFIG/hotplug/comes-later" hotplug_comes_later
    run_case "$CONFIG/hotplug/only-one" hotplug_only_one
    run_case "$CONFIG/hotplug/crews" hotplug_crews
    run_case "$CONFIG/hotplug/crews-come-later" hotplug_crews_come_later
    run_case "$CONFIG/hotplug/crews-only-one" hotplug_crews_only_one
}

# However a case ends.
hotplug_restore() {
    echo 1 >"$HOTPLUG_SWITCH"
    ((${#HOTPLUG_LOAD[@]} == 0)) || kill "${HOTPLUG_LOAD[@]}" || true
    [[ -z $HOTPLUG_SERVES ]] || umount -l "$HOTPLUG_MNT" || true
    [[ -z $HOTPLUG_NULL ]] || umount -l "$HOTPLUG_BELOW" || true
}

# The mount has a worker for it, which goes elsewhere and comes back.
hotplug_load() {
    trap hotplug_restore EXIT
    hotplug_under_load "$MNT"
    hotplug_pinned "$DAEMON" 1
}

# It was offline when the mount was made.
hotplug_comes_later() {
    trap hotplug_restore EXIT
    echo 0 >"$HOTPLUG_SWITCH"
    hotplug_mount
    hotplug_under_load "$HOTPLUG_MNT"
    hotplug_umount
}

# The only one that the mount may use.
hotplug_only_one() {
    trap hotplug_restore EXIT
    hotplug_mount taskset --cpu-list "$HOTPLUG_CPU"
    hotplug_under_load "$HOTPLUG_MNT"
    hotplug_umount
}

# A pool on a file system that may be a network's (FUSE): each request that can be in hand has a worker, a crew on each CPU.
hotplug_crews() {
    trap hotplug_restore EXIT
    hotplug_crews_mount
    hotplug_under_load "$HOTPLUG_MNT"
    hotplug_pinned "$HOTPLUG_SERVES" 2
    hotplug_crews_umount
}

hotplug_crews_come_later() {
    trap hotplug_restore EXIT
    echo 0 >"$HOTPLUG_SWITCH"
    hotplug_crews_mount
    hotplug_under_load "$HOTPLUG_MNT"
    hotplug_crews_umount
}

hotplug_crews_only_one() {
    trap hotplug_restore EXIT
    hotplug_crews_mount taskset --cpu-list "$HOTPLUG_CPU"
    hotplug_under_load "$HOTPLUG_MNT"
    hotplug_pinned "$HOTPLUG_SERVES" 2
    hotplug_crews_umount
}

# hotplug_under_load MOUNT: it goes and comes, and whoever works there is served all the time, on whatever CPU there is.
hotplug_under_load() {
    local n mount=$1
    mkdir -p "$mount/hotplug"
    for ((n = 0; n < 4; n++)); do
        hotplug_work "$mount/hotplug/$n" "$mount/hotplug/enough" &
        HOTPLUG_LOAD+=("$!")
    done
    for ((n = 0; n < HOTPLUG_ROUNDS; n++)); do
        echo 0 >"$HOTPLUG_SWITCH"
        hotplug_served "$mount" 0
        echo 1 >"$HOTPLUG_SWITCH"
        hotplug_served "$mount" 0
        hotplug_served "$mount" "$HOTPLUG_CPU"
    done
    touch "$mount/hotplug/enough"
    for n in "${HOTPLUG_LOAD[@]}"; do wait "$n"; done
    HOTPLUG_LOAD=()
    rm -r "$mount/hotplug"
}

# hotplug_served MOUNT CPU: that one who works there comes to his end.
hotplug_served() {
    # shellcheck disable=SC2016 # for another shell
    timeout --kill-after=5 60 taskset --cpu-list "$2" bash -euc "$(declare -f hotplug_work)"'; hotplug_work "$1/hotplug/served"' served "$1"
}

# hotplug_work DIRECTORY [ENOUGH]: files made, read, moved and removed there, and one that is large; until the file ENOUGH is there.
hotplug_work() {
    local n
    mkdir -p "$1"
    while :; do
        for ((n = 0; n < 50; n++)); do
            echo "$n" >"$1/a"
            ln "$1/a" "$1/b"
            mv "$1/b" "$1/c"
            [[ $(<"$1/c") = "$n" ]]
            rm "$1/a" "$1/c"
        done
        head -c 300000 /dev/zero >"$1/large"
        cmp -n 300000 "$1/large" /dev/zero
        echo sync >"$1/a"
        sync "$1/a" "$1/large"
        if [[ -z ${2:-} || -e $2 ]]; then break; fi
    done
    rm -r "$1"
}

# hotplug_pinned PROCESS LEAST: the CPU's workers, where there are any, are so many at least, and the one that serves most is there again. (Of a crew
# those that are hardly ever woken look for their CPU as rarely.)
hotplug_pinned() {
    local task workers=0 waits most=0 cpu busiest=
    for task in "/proc/$1/task"/*; do
        [[ $(<"$task/comm") = "cofs-fuse-cpu$HOTPLUG_CPU" ]] || continue
        cpu=$(awk '/^Cpus_allowed_list/ { print $2 }' "$task/status")
        waits=$(awk '/^voluntary/ { print $2 }' "$task/status")
        workers=$((workers + 1))
        if ((waits > most)); then most=$waits busiest=$cpu; fi
        echo "a worker may use CPU $cpu; it has waited $waits times"
    done
    if [[ $TRANSPORT = uring ]]; then ((workers >= $2)) && [[ $busiest = "$HOTPLUG_CPU" ]]; else ((workers == 0)); fi
}

# hotplug_crews_mount [COMMAND...]: as hotplug_mount, with a pool on the null file system.
hotplug_crews_mount() {
    local null=${CARGO_TARGET_DIR:-target}/release/examples/null
    HOTPLUG_BELOW=$WORK/hotplug-below
    mkdir -p "$HOTPLUG_BELOW"
    "$null" --transport dev "$HOTPLUG_BELOW" >>"$LOGS/daemon.log" 2>&1 </dev/null &
    HOTPLUG_NULL=$!
    serves "$HOTPLUG_NULL" "$HOTPLUG_BELOW"
    HOTPLUG_POOL=(--pool "far=$HOTPLUG_BELOW")
    hotplug_mount "$@"
}

hotplug_crews_umount() {
    hotplug_umount
    umount "$HOTPLUG_BELOW"
    wait_gone "$HOTPLUG_NULL" 100
    HOTPLUG_NULL=
}

# hotplug_mount [COMMAND...]: another volume, by a process that COMMAND starts.
hotplug_mount() {
    HOTPLUG_STORE=$BELOW/hotplug HOTPLUG_MNT=$WORK/hotplug
    mkdir -p "$HOTPLUG_MNT"
    "$COFS" format "$HOTPLUG_STORE" "${HOTPLUG_POOL[@]}"
    "$@" "$COFS" mount "$HOTPLUG_STORE" "$HOTPLUG_MNT" -o "norestart,$(mount_options)" >>"$LOGS/daemon.log" 2>&1 </dev/null &
    HOTPLUG_SERVES=$!
    serves "$HOTPLUG_SERVES" "$HOTPLUG_MNT"
}

hotplug_umount() {
    umount "$HOTPLUG_MNT"
    wait_gone "$HOTPLUG_SERVES" 300
    HOTPLUG_SERVES=
    "$COFS" fsck "$HOTPLUG_STORE"
    rm -rf --one-file-system "$HOTPLUG_STORE"
}
