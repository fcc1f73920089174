# shellcheck shell=bash
# What must not grow. After many creates and unlinks the daemon and the kernel know nothing of them any more; under a mixed load the
# daemon's memory, descriptors and threads stay where they are. Long form: a million files, and ten minutes of load;
# SOAK_SECONDS=86400 makes a day of them.

# Per CPU, and by others on this machine, some are always in use or kept for the next.
SOAK_SLABS=(fuse_inode dentry kmalloc-32 kmalloc-cg-32)
SOAK_SLAB_NOISE=500

suite_soak() {
    [[ $KIND != native ]] || return 0
    ((LONG)) || [[ $KIND = ext4 ]] || return 0
    mkdir -p "$MNT/soak"
    run_case "$CONFIG/soak/forgets" soak_forgets
    run_case "$CONFIG/soak/load" soak_load
    rm -rf "$MNT/soak"
}

soak_forgets() {
    local files=20000 known slab n
    local -A before=()
    if ((LONG)); then files=1000000; fi
    soak_metarates 1000 1
    known=$(soak_known)
    for slab in "${SOAK_SLABS[@]}"; do before[$slab]=$(soak_slab "$slab"); done
    soak_metarates "$files" 2
    for ((n = 0; n < 300; n++)); do
        if (($(soak_known) <= known)); then break; fi
        sleep 0.1
    done
    echo "known to the daemon: $known before, $(soak_known) after"
    (($(soak_known) <= known))
    for slab in "${SOAK_SLABS[@]}"; do
        for ((n = 0; n < 10; n++)); do
            if (($(soak_slab "$slab") <= before[$slab] + (files < 40000 ? files / 4 : 10000) + SOAK_SLAB_NOISE)); then break; fi
            sleep 1
        done
        echo "$slab: ${before[$slab]} before, $(soak_slab "$slab") after"
        ((n < 10))
    done
}

# soak_metarates FILES PROCESSES: twice as many creates and unlinks, half of them with 4 KiB in each.
soak_metarates() { "$COFS" bench metarates "$MNT/soak" --files "$1" -p "$2" -i 1 --warm --output json >/dev/null; }

# Inodes in the daemon's tables: open ones, those of an earlier life, and removed ones that the kernel still knows.
soak_known() { "$COFS" status "$MNT" --output json | jq '.open_files + .inherited_files + .caches.ghosts'; }

# soak_slab NAME: objects in use, once the kernel has dropped what it can.
soak_slab() {
    echo 3 >/proc/sys/vm/drop_caches
    awk -v name="$1" '$1 == name { n = $2 } END { print n + 0 }' /proc/slabinfo
}

soak_load() {
    local seconds=6 end warm now n
    if ((LONG)); then seconds=600; fi
    seconds=${SOAK_SECONDS:-$seconds}
    # What is kept for the next is kept after the first third.
    end=$((SECONDS + seconds / 3))
    soak_round
    while ((SECONDS < end)); do soak_round; done
    warm=$(soak_size)
    end=$((SECONDS + seconds * 2 / 3))
    while ((SECONDS < end)); do
        soak_round
        echo "known, descriptors, threads, KiB: $(soak_size)"
    done
    # Threads that were needed for a moment go after some seconds.
    for ((n = 0; n < 40; n++)); do
        now=$(soak_size)
        # shellcheck disable=SC2086
        if soak_is_no_larger $now than $warm; then break; fi
        sleep 0.5
    done
    echo "known, descriptors, threads, KiB: $warm after a third, $now at the end"
    # shellcheck disable=SC2086
    soak_is_no_larger $now than $warm
}

# Objects that are made ahead are kept open up to a bound (256), so that descriptors and memory have room to move.
soak_is_no_larger() { (($1 <= $6 && $2 <= $7 + 300 && $3 <= $8 + 4 && $4 <= $9 + $9 / 4 + 65536)); }

soak_size() {
    local threads=("/proc/$DAEMON/task"/*) descriptors=("/proc/$DAEMON/fd"/*)
    echo "$(soak_known) ${#descriptors[@]} ${#threads[@]} $(awk '/^VmRSS/ { print $2 }' "/proc/$DAEMON/status")"
}

# Names, small and large files, locks, mappings, syncs, listings, all at once; nothing is left.
soak_round() {
    mkdir -p "$MNT/soak/bench" "$MNT/soak/stress"
    stress-ng --temp-path "$MNT/soak/stress" --timeout 1 --rename 1 --link 1 --dir 1 --lockf 1 --mmap 1 --mmap-bytes 4m --mmap-file \
        --hdd 1 --hdd-bytes 8m --sync-file 1 --sync-file-bytes 1m >/dev/null 2>&1 &
    "$COFS" bench metarates "$MNT/soak/bench" --files 1000 -p 2 -i 1 --warm --output json >/dev/null
    cp -r "$ROOT/tests" "$MNT/soak/tree"
    diff -r "$ROOT/tests" "$MNT/soak/tree"
    dd if=/dev/zero of="$MNT/soak/large" bs=1M count=8 conv=fsync status=none
    ls -lR "$MNT/soak/tree" >/dev/null
    wait $! || true # stress-ng's own counts, see suite stress
    rm -rf "$MNT/soak"/*
}
