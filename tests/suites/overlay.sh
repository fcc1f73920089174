# shellcheck shell=bash
# A volume as a layer of the kernel's overlayfs: what is done to a tree and to an overlay of it has the same outcome.
#
# The volume is mounted with handles=off, without which Linux 6.18 loses what was copied up (docs/design/fuse.md). systemd's cases try it with
# handles, on Linux 6.1.

suite_overlay() {
    if [[ $KIND = native ]]; then
        overlay_cases
        return
    fi
    local STORE=$BELOW/layers MNT=$WORK/layers DAEMON= MORE_OPTIONS=handles=off
    mkdir -p "$MNT"
    "$COFS" format "$STORE" >>"$LOGS/daemon.log" 2>&1
    volume_up || return 0
    overlay_cases
    volume_down overlay/
    run_case_within 120 "$CONFIG/overlay/layers-fsck" "$COFS" fsck "$STORE"
    rm -rf "$STORE" "$MNT"
}

overlay_cases() {
    local layers=$MNT/layers
    run_case "$CONFIG/overlay/both-layers" overlay "$layers" "$layers/upper" ""
    run_case "$CONFIG/overlay/indexed" overlay "$layers" "$layers/upper" ,index=on,redirect_dir=on
    # Debian's XFS has access control lists, that of the kernels of virtual machines not always.
    if [[ $CONFIG != *xfs* ]]; then
        run_case "$CONFIG/overlay/lower-layer" overlay "$layers" "$BELOW/upper" ""
    fi
}

# overlay LAYERS UPPER OPTIONS: the layers are below LAYERS, but for the upper one.
overlay() {
    local layers=$1 upper=$2 plain=$WORK/plain.$$ merged=$WORK/merged.$$
    local options=lowerdir=$layers/lower,upperdir=$upper/tree,workdir=$upper/work$3
    rm -rf "$layers" "$upper" "$plain"
    mkdir -p "$layers/lower" "$upper"/{tree,work} "$merged"
    make_tree "$plain"
    # The top of the overlay has the times of the upper layer.
    touch -r "$plain" "$upper/tree"
    rsync -aHAX --sparse "$plain/" "$layers/lower/"
    # Of this subshell: a failure leaves no mount.
    # shellcheck disable=SC2064
    trap "umount '$merged' 2>/dev/null || true" EXIT
    mount -t overlay -o "$options" cofs-test "$merged"
    same_content "$plain" "$merged"
    change_tree "$plain"
    change_tree "$merged"
    same_content "$plain" "$merged"
    # The overlay finds what it has copied up by its number then, and by name afterwards.
    local n
    for n in 1 2 3; do
        echo $((n % 2 + 2)) >/proc/sys/vm/drop_caches
        find "$merged" >/dev/null
        find "$layers/lower" "$upper/tree" -type f -exec cat {} + >/dev/null
        same_content "$plain" "$merged"
    done
    umount "$merged"
    mount -t overlay -o "$options" cofs-test "$merged"
    same_content "$plain" "$merged"
    umount "$merged"
    # So it was this layer that was asked for them.
    [[ -n $(find "$upper/tree" -type c -links 1 ! -name null) ]]
    rm -rf "$layers" "$upper" "$plain" "$merged"
}

# What make_tree has made, without the marks of time.
change_tree() {
    rm "$1/a/file 9" "$1/b/symlink"
    mv "$1/a/file 10" "$1/a/moved"
    mv "$1/a/file 11" "$1/a/file 12"
    rm -r "$1/b/c"
    mkdir -p "$1/b/c/anew"
    mv "$1/b" "$1/renamed"
    mv "$1/renamed" "$1/b"
    mv "$1/sticky" "$1/empty/"
    rm "$1/a/file 13"
    mkdir "$1/a/file 13"
    echo more >>"$1/a/file 3"
    truncate -s 100 "$1/a/file 41"
    echo new >"$1/a/new"
    # Not of what has yet to be copied up: it gets another number by that where there are no handles.
    ln "$1/a/new" "$1/empty/linked"
    chmod 600 "$1/a/file 51"
    setfattr -n user.new -v value "$1/a/file 52"
    # Copying up, overlayfs sets the mode first and then the owner, with which FUSE takes set-id bits away (virtiofs, too).
    chmod 755 "$1/a/file 6"
    # Hard links are copied up one by one, unless there is an index.
    rm "$1/b/hard link"
    find "$1" -exec touch -h -d @1700000000 {} +
}
