# shellcheck shell=bash
# A directory below that hangs: a volume whose pool, or metadata, lies on a file system (the null one) that is stopped for a while. Who reads or
# writes what is there waits; nobody else does, be it on the same CPU, be it for a sync; and in the end nothing is lost.

# More than there were ever threads for work that waits.
HANGING_WRITERS=20
HANGING_CHANGE=()

suite_hanging() {
    hanging_nfs
    [[ $KIND = ext4 ]] || return 0
    local null=${CARGO_TARGET_DIR:-target}/release/examples/null store=$BELOW/hanging
    HANGING=$WORK/hanging HANGING_BELOW=$WORK/hanging-below
    mkdir -p "$HANGING" "$HANGING_BELOW"
    # A close there is asked about, too.
    "$null" --transport dev --flush "$HANGING_BELOW" >>"$LOGS/daemon.log" 2>&1 </dev/null &
    HANGS=$!
    DAEMONS+=("$HANGS")
    MOUNTS+=("$HANGING_BELOW")
    serves "$HANGS" "$HANGING_BELOW"
    "$COFS" format "$store" --pool "slow=$HANGING_BELOW/pool" >>"$LOGS/daemon.log" 2>&1
    "$COFS" mount "$store" "$HANGING" -o "norestart,transport=$TRANSPORT" >>"$LOGS/daemon.log" 2>&1 </dev/null &
    HANGING_SERVES=$!
    DAEMONS+=("$HANGING_SERVES")
    MOUNTS+=("$HANGING")
    if serves "$HANGING_SERVES" "$HANGING"; then
        run_case "$CONFIG/hanging/others" hanging_others
        run_case "$CONFIG/hanging/create" hanging_create
        run_case "$CONFIG/hanging/bystanders" hanging_bystanders
        run_case "$CONFIG/hanging/umount" hanging_umount
        run_case "$CONFIG/hanging/fsck" "$COFS" fsck "$store"
        run_case "$CONFIG/hanging/metadata" hanging_metadata "$BELOW/hanging-metadata"
        run_case "$CONFIG/hanging/disk" hanging_disk "$WORK/hanging-disk"
    else
        fail "$CONFIG/hanging/mount" "does not serve; $LOGS/daemon.log"
    fi
    umount "$HANGING_BELOW" || umount -l "$HANGING_BELOW"
    wait_gone "$HANGS" 100 || kill -KILL "$HANGS"
    forget DAEMONS "$HANGS"
    forget DAEMONS "$HANGING_SERVES"
    forget MOUNTS "$HANGING"
    forget MOUNTS "$HANGING_BELOW"
    rm -rf --one-file-system "$store"
}

# The real thing: NFS, in a machine of its own (user-mode Linux, an ordinary process), as this machine's kernel may not have it.
hanging_nfs() {
    local lacks cases=2
    ((LONG)) && cases=5 # a soft mount as well, which fails after minutes, and servers that restart
    # The machine has a kernel of its own: what is configured here makes no difference there.
    [[ $CONFIG = "${CONFIGS[0]}" ]] || return 0
    lacks=$(machine_lacks)
    if [[ -n $lacks ]]; then
        skip "$CONFIG/hanging/nfs" "$lacks"
        return 0
    fi
    crash_test hanging-nfs boots::a_pool_on_nfs_whose_server_is_out_of_reach "$cases" 1300 nfs
}

hanging_others() {
    local n writers=() status=0
    # Two directories away: near them it is learned that files end large, and they begin in objects.
    mkdir -p "$HANGING/large/files"
    for ((n = 0; n < HANGING_WRITERS; n++)); do
        dd if=/dev/zero of="$HANGING/large/files/$n" bs=64K count=8 conv=fsync status=none
    done
    hanging_stop
    for ((n = 0; n < HANGING_WRITERS; n++)); do
        dd if=/dev/urandom of="$HANGING/large/files/$n" bs=64K count=8 conv=notrunc,fsync status=none &
        writers+=($!)
    done
    # What the pool said before is old by then.
    sleep 1.5
    hanging_all_wait "${writers[@]}"
    # Where files begin in an object: this one does not.
    timeout --kill-after=5 60 touch "$HANGING/large/files/new" || status=$?
    hanging_work 50 || status=$?
    hanging_all_wait "${writers[@]}"
    kill -CONT "$HANGS"
    for n in "${writers[@]}"; do wait "$n"; done
    ((status == 0))
}

# Who makes files where files begin large just when the pool stops, of which nobody can know yet, and who looks for names there.
hanging_create() {
    local round n maker here content status=0
    content=$(head -c 100000 /dev/urandom | base64)
    for round in 1 2 3; do
        here=$HANGING/large/create$round
        mkdir "$here"
        for n in {1..4}; do dd if=/dev/zero of="$here/$n" bs=64K count=8 conv=fsync status=none; done
        hanging_stop
        # All are open together: of a file that is closed and small it is learned that files are.
        timeout --kill-after=5 60 sh -c 'exec 3>"$1/new1" 4>"$1/new2" 5>"$1/new3"' create "$here" &
        maker=$!
        hanging_names "$here" || status=$?
        wait "$maker" || status=$?
        hanging_names "$here" || status=$?
        kill -CONT "$HANGS"
        ((status == 0)) || { echo "round $round: status $status"; return "$status"; }
        for n in 1 2 3; do echo "$content" >"$here/new$n"; done
        for n in 1 2 3; do [[ $(<"$here/new$n") = "$content" ]]; done
    done
    rm -r "$HANGING/large"/create*
}

# hanging_names DIRECTORY: names there are found, and found not to be.
hanging_names() {
    # shellcheck disable=SC2016 # for another shell
    timeout --kill-after=5 60 bash -euc 'for n in {1..10}; do [[ ! -e $1/nobody$RANDOM && -f $1/1 ]]; sleep 0.05; done' names "$1"
}

# More of those who look at, set, list or remove what hangs than there are workers.
hanging_bystanders() {
    local n file descriptor status=0 held=() bystanders=() killed=()
    echo 1 >/proc/sys/vm/drop_caches
    for ((n = 0; n < 4; n++)); do
        file=$HANGING/large/files/$n
        exec {descriptor}<>"$file"
        held+=("$descriptor")
        # From now on its object tells size and times.
        head -c 65536 /dev/urandom >&"$descriptor"
    done
    hanging_stop
    for ((n = 0; n < 4; n++)); do
        stat "$HANGING/large/files/$n" &
        bystanders+=($!)
        touch -m "$HANGING/large/files/$n" &
        bystanders+=($!)
        { ls -l "$HANGING/large/files" || true; } & # it may meet what is just being removed
        bystanders+=($!)
        rm "$HANGING/large/files/$((n + 10))" &
        bystanders+=($!)
    done
    stat "$HANGING/large/files/0" &
    killed+=($!)
    cat "$HANGING/large/files/19" &
    killed+=($!)
    sleep 0.5
    hanging_work 10 || status=$?
    hanging_all_wait "${killed[@]}" || status=$?
    # Who only looks, or reads what the kernel reads ahead, can be killed.
    for n in "${killed[@]}"; do
        kill -KILL "$n"
        wait_gone "$n" 100 || { echo "$n cannot be killed"; status=1; }
    done
    kill -CONT "$HANGS"
    for descriptor in "${held[@]}"; do exec {descriptor}>&-; done
    for n in "${bystanders[@]}"; do wait "$n"; done
    ((status == 0))
}

# hanging_cold STORE OPTIONS: the volume mounted, with small and large files of which it remembers nothing, and one, near, that it does.
hanging_cold() {
    local store=$1 options=$2
    "$COFS" mount -d "$store" "$HANGING" -o "$options"
    # Those who make a file hold its directory's lock in the kernel meanwhile.
    mkdir "$HANGING/files" "$HANGING/made"
    # So many that most are in tables.
    head -c 39M /dev/urandom >"$WORK/hanging-bytes"
    (cd "$HANGING/files" && split -b 4000 -a 5 -d "$WORK/hanging-bytes" small- && split -b 1M -a 2 -d "$WORK/hanging-bytes" large-)
    "$COFS" umount "$HANGING"
    "$COFS" mount -d "$store" "$HANGING" -o "$options"
    # The one that watches over the other, if there is one.
    HANGING_SERVES=$("$COFS" status "$HANGING" --output json | jq '.mount | .supervisor // .pid')
    DAEMONS+=("$HANGING_SERVES")
    touch "$HANGING/near"
    setfattr -n user.near -v yes "$HANGING/near"
    sync
    echo 3 >/proc/sys/vm/drop_caches
}

# hanging_near STORE PID...: near is answered on the CPU of those who wait, and they, once what hangs goes on, as are those in HANGING_CHANGE, who may
# have had to wait, too; then the volume is in order.
hanging_near() {
    local store=$1 n status=0
    shift
    # The kernel keeps no attributes of this kind, and asks.
    for n in {1..20}; do
        timeout --kill-after=5 60 taskset -c 0 getfattr --only-values -n user.near "$HANGING/near" || {
            status=$?
            hanging_where
            break
        }
    done
    hanging_all_wait "$@" || status=$?
    kill -CONT "$HANGS"
    for n in "$@" "${HANGING_CHANGE[@]}"; do wait "$n" || status=$?; done
    HANGING_CHANGE=()
    "$COFS" umount "$HANGING" || status=$?
    wait_gone "$HANGING_SERVES" 300 || status=$?
    forget DAEMONS "$HANGING_SERVES"
    "$COFS" fsck "$store" || status=$?
    return "$status"
}

# Where in the kernel the threads that serve are.
hanging_where() {
    local task
    for task in /proc/$(pgrep -n -f -- "mount -d .* $HANGING")/task/*; do
        echo "$(<"$task/comm"): $(tr '\n' ' ' <"$task/stack")"
    done
}

# hanging_metadata STORE: where it is the metadata that hang, who needs none but those in memory does not wait for others on his CPU who do,
# to read or to change something.
hanging_metadata() {
    local store=$1 n far=() status=0
    "$COFS" format "$store" --meta "$HANGING_BELOW/meta" >>"$LOGS/daemon.log" 2>&1
    hanging_cold "$store" "transport=$TRANSPORT"
    hanging_stop
    for n in 1 2 3 4; do
        taskset -c 0 cmp "$HANGING/files/small-0000$n" <(tail -c "+$((n * 4000 + 1))" "$WORK/hanging-bytes" | head -c 4000) &
        far+=($!)
        taskset -c 0 touch "$HANGING/made/$n" &
        far+=($!)
    done
    sleep 0.5
    hanging_near "$store" "${far[@]}" || status=$?
    rm -rf --one-file-system "$store" "$WORK/hanging-bytes"
    ((status == 0))
}

# hanging_disk DIRECTORY: where all lies on a disk that hangs (a local file system, on a loop device, on what is stopped), who needs nothing of it does not
# wait for others on his CPU who do, be it for names, for small files or for large ones, and to read or to change something.
hanging_disk() {
    local disk=$1 store=$1/store n descriptor held=() far=() status=0
    mkdir -p "$disk"
    truncate -s 512M "$HANGING_BELOW/disk"
    # Without a journal: that would be waited for by who changes something.
    mkfs.ext4 -q -F -O ^has_journal "$HANGING_BELOW/disk"
    mount -o loop "$HANGING_BELOW/disk" "$disk"
    "$COFS" format "$store" >>"$LOGS/daemon.log" 2>&1
    hanging_cold "$store" "$(mount_options)"
    # Those that will be changed are open: their names and inodes are in memory, what is to be changed is not.
    for n in "$HANGING/files"/small-0{1,3,5}{0,5}00; do
        exec {descriptor}<"$n"
        held+=("$descriptor")
    done
    # What was gathered is committed, that is synced, and nothing is changed for two ticks: the journal is at rest.
    sleep 8
    echo 3 >/proc/sys/vm/drop_caches
    hanging_stop
    # Apart from each other, as the kernel reads ahead.
    for n in 2 4 6; do
        taskset -c 0 cmp "$HANGING/files/small-0${n}000" <(tail -c "+$((n * 4000000 + 1))" "$WORK/hanging-bytes" | head -c 4000) &
        far+=($!)
        taskset -c 0 cmp "$HANGING/files/large-1$n" <(tail -c "+$(((10 + n << 20) + 1))" "$WORK/hanging-bytes" | head -c 1M) &
        far+=($!)
        taskset -c 0 stat "$HANGING/files/small-0${n}500" &
        far+=($!)
    done
    # Of each a part of its bytes must be read.
    for n in "$HANGING/files"/small-0{1,3,5}{0,5}00; do
        taskset -c 0 truncate -s 1000 "$n" &
        HANGING_CHANGE+=($!)
    done
    for descriptor in "${held[@]}"; do exec {descriptor}>&-; done
    sleep 0.5
    hanging_near "$store" "${far[@]}" || status=$?
    umount "$disk"
    rm "$HANGING_BELOW/disk" "$WORK/hanging-bytes"
    ((status == 0))
}

# The file system below stops; whatever happens, it goes on.
hanging_stop() {
    kill -STOP "$HANGS"
    trap 'kill -CONT "$HANGS"' EXIT
    while grep -h '^State:' "/proc/$HANGS/task"/*/status | grep -qv T; do sleep 0.05; done
}

# hanging_work ROUNDS: that one who has nothing to do with what hangs comes to his end.
hanging_work() {
    local status=0
    # shellcheck disable=SC2016 # for another shell
    timeout --kill-after=5 60 bash -euc '
        mkdir -p "$1/others"; cd "$1/others"
        for ((n = 0; n < $2; n++)); do
            echo "$n" >a; ln a b; mv b c; ln -s a s; [[ $(cat c) = "$n" && $(ls) = $'\''a\nc\ns'\'' ]]
            chmod 600 a; touch a; sync a; sync .; rm a c s
        done' others "$HANGING" "$1" || status=$?
    echo "others: status $status"
    return "$status"
}

# hanging_all_wait PID...: that none has come to an end.
hanging_all_wait() {
    local pid code
    for pid in "$@"; do
        if ! kill -0 "$pid" 2>/dev/null; then
            code=0
            wait "$pid" || code=$?
            echo "one who was to wait has ended, with status $code" >&2
            return 1
        fi
    done
}

hanging_umount() {
    umount "$HANGING"
    wait_gone "$HANGING_SERVES" 300
}
