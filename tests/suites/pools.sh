# shellcheck shell=bash
# What becomes of a mounted volume whose pool's file system is full, unmounted, read-only or dead, and then well again. The metadata lie elsewhere:
# names and small files go on, and nothing is lost.

suite_pools() {
    [[ $KIND = ext4 ]] || return 0
    local image=$WORK/pools.img device name
    POOLED=$WORK/pooled POOLED_BELOW=$WORK/pooled-below POOLED_STORE=$BELOW/pooled POOLED_BYTES=$WORK/pooled-bytes
    mkdir -p "$POOLED" "$POOLED_BELOW"
    head -c 8M /dev/urandom >"$POOLED_BYTES"
    truncate -s 64M "$image"
    mkfs.ext4 -q -F -m 0 "$image"
    device=$(losetup --find --show "$image")
    LOOPS+=("$device")
    MOUNTS+=("$POOLED_BELOW" "$POOLED")
    POOLED_DEVICE=$device
    for name in full unmounted read-only dead; do
        run_case "$CONFIG/pools/$name" "pools_${name//-/_}"
        pools_down
    done
    losetup -d "$device"
    forget LOOPS "$device"
    forget MOUNTS "$POOLED_BELOW"
    forget MOUNTS "$POOLED"
    rm -f "$image" "$POOLED_BYTES"
}

# A volume, mounted, with a pool on the image (or in DIRECTORY), and a large file.
pools_up() {
    mount -o errors=remount-ro "$POOLED_DEVICE" "$POOLED_BELOW"
    "$COFS" format "$POOLED_STORE" --pool "small=${1:-$POOLED_BELOW}/pool"
    pools_mount
    cp "$POOLED_BYTES" "$POOLED/kept"
    sync "$POOLED/kept"
}

pools_mount() { "$COFS" mount -d "$POOLED_STORE" "$POOLED" -o "$(mount_options)"; }

# Whatever a case has left.
pools_down() {
    local dir
    for dir in "$POOLED" "$WORK/pooled-outer" "$POOLED_BELOW"; do
        if [[ -n $(findmnt -n "$dir") ]]; then umount "$dir" || umount -l "$dir"; fi
    done
    rm -rf --one-file-system "$POOLED_STORE" "$WORK/pooled-outer" "$BELOW/pooled-outer"
    mount "$POOLED_DEVICE" "$POOLED_BELOW"
    rm -rf --one-file-system "$POOLED_BELOW/pool"
    umount "$POOLED_BELOW"
}

# The end: all is well, and there in the next mount, too.
pools_end() {
    "$COFS" umount "$POOLED"
    "$COFS" fsck "$POOLED_STORE"
    pools_mount
    pools_keep kept "$@"
    "$COFS" umount "$POOLED"
}

# pools_keep FILE...: their bytes are read, and not from a cache.
pools_keep() {
    local file
    echo 3 >/proc/sys/vm/drop_caches
    for file in "$@"; do cmp "$POOLED_BYTES" "$POOLED/$file"; done
}

# pools_small TEXT: names and small files.
pools_small() {
    local n
    mkdir "$POOLED/$1"
    for n in {1..20}; do
        head -c $((n * 300)) "$POOLED_BYTES" >"$POOLED/$1/new"
        mv "$POOLED/$1/new" "$POOLED/$1/$n"
    done
    for n in {1..20}; do cmp "$POOLED/$1/$n" <(head -c $((n * 300)) "$POOLED_BYTES"); done
}

# pools_refuse WORDS COMMAND...: that it fails and says so.
pools_refuse() {
    local words=$1 said
    shift
    if said=$("$@" 2>&1); then
        echo "not refused: $*"
        return 1
    fi
    echo "$said"
    [[ $said = *"$words"* ]]
}

# pools_heal FILE: a large file can be made again within a while.
pools_heal() {
    local n
    for n in {1..100}; do
        if cp "$POOLED_BYTES" "$POOLED/$1"; then
            pools_keep "$1"
            return
        fi
        sleep 0.1
    done
    return 1
}

pools_available() { df --output=avail -B1 "$POOLED" | tail -n 1; }

# pools_are HEALTH: soon.
pools_are() {
    local n
    for n in {1..50}; do
        if [[ $("$COFS" status "$POOLED" --output json | jq -r '.pools[0].health') = "$1" ]]; then return; fi
        sleep 0.1
    done
    "$COFS" status "$POOLED"
    return 1
}

pools_full() {
    local full='No space left on device' bytes n
    pools_up
    echo begins >"$POOLED/grows"
    pools_refuse "$full" dd if=/dev/zero of="$POOLED/ballast" bs=1M
    bytes=$(stat -c %s "$POOLED/ballast")
    ((bytes > 30000000))
    cmp -n "$bytes" "$POOLED/ballast" /dev/zero
    # It is told, for as long as a second later.
    for n in {1..30}; do
        if (($(pools_available) < 1000000)); then break; fi
        sleep 0.1
    done
    (($(pools_available) < 1000000))
    pools_refuse "$full" cp "$POOLED_BYTES" "$POOLED/other"
    # What would outgrow the metadata keeps what it has.
    pools_refuse "$full" dd if=/dev/zero of="$POOLED/grows" bs=1M count=1 seek=1 conv=notrunc
    [[ $(head -n 1 "$POOLED/grows") = begins ]]
    pools_small small
    # What has its room can be written over.
    dd if="$POOLED_BYTES" of="$POOLED/kept" bs=1M conv=notrunc,fsync
    pools_keep kept
    rm "$POOLED/ballast" "$POOLED/other"
    pools_heal again
    pools_end again
}

# The volume holds what it has opened: that it lies under no name for a while, nobody notices.
pools_unmounted() {
    pools_up
    umount -l "$POOLED_BELOW"
    cp "$POOLED_BYTES" "$POOLED/meanwhile"
    pools_small small
    pools_keep kept meanwhile
    [[ -z $(ls -A "$POOLED_BELOW") ]]
    mount "$POOLED_DEVICE" "$POOLED_BELOW"
    cp "$POOLED_BYTES" "$POOLED/after"
    pools_keep after
    pools_end meanwhile after
}

# As ext4 does on an error; it can be written again when it has been unmounted.
pools_read_only() {
    local words='Read-only file system'
    pools_up
    cp "$POOLED_BYTES" "$POOLED/removed"
    sync "$POOLED/removed"
    # Where the kernel opens an object itself, for passthrough, it has EIO for all that fails then.
    exec 8<>"$POOLED/kept"
    echo 1 >"/sys/fs/ext4/${POOLED_DEVICE#/dev/}/trigger_fs_error"
    # shellcheck disable=SC2016 # for another shell
    pools_refuse "$words" bash -c 'head -c 4096 /dev/zero >&8'
    exec 8>&-
    pools_refuse "$words" cp "$POOLED_BYTES" "$POOLED/other"
    pools_small small
    pools_keep kept removed
    rm "$POOLED/removed"
    pools_keep kept
    pools_refuse 'could not be closed in order: read-only file system' "$COFS" umount "$POOLED"
    umount "$POOLED_BELOW"
    e2fsck -fy "$POOLED_DEVICE" || (($? == 1))
    mount "$POOLED_DEVICE" "$POOLED_BELOW"
    pools_mount
    pools_keep kept
    pools_heal again
    pools_left_over
    pools_end again
}

# What was made ahead of need before the file system was mounted anew: as it may have lost tags that were not synced, nobody knows that it is nobody's, until all is
# looked at.
pools_left_over() {
    local found
    "$COFS" umount "$POOLED"
    found=$("$COFS" fsck "$POOLED_STORE") || (($? == 4))
    [[ $found = *' of 0 bytes belongs to no inode'* ]]
    if grep '^wrong' <<<"$found" | grep -v ' of 0 bytes belongs to no inode'; then return 1; fi
    "$COFS" fsck --repair "$POOLED_STORE" || (($? == 1))
    pools_mount
}

# A pool in a volume whose process is killed.
pools_dead() {
    local outer=$WORK/pooled-outer words='Transport endpoint is not connected' serves
    mkdir -p "$outer"
    "$COFS" format "$BELOW/pooled-outer"
    "$COFS" mount -d "$BELOW/pooled-outer" "$outer" -o "norestart,allow_other,passthrough=off,transport=$TRANSPORT"
    serves=$("$COFS" status "$outer" --output json | jq .mount.pid)
    pools_up "$outer"
    kill -KILL "$serves"
    wait_gone "$serves" 100
    echo 3 >/proc/sys/vm/drop_caches
    pools_refuse "$words" cat "$POOLED/kept"
    pools_refuse "$words" cp "$POOLED_BYTES" "$POOLED/other"
    pools_small small
    pools_are failed
    "$COFS" umount --dead "$outer"
    pools_small unmounted
    "$COFS" mount -d "$BELOW/pooled-outer" "$outer" -o "allow_other,passthrough=off,transport=$TRANSPORT"
    pools_heal again
    pools_keep kept
    pools_are healthy
    pools_end again
    "$COFS" umount "$outer"
}
