#!/usr/bin/env bash
# Ten million files in a volume: how fast the last tenth comes beside the first, what the daemon takes, how long a mount takes afterwards
# (also after kill -9), and that ls, stat, find and rm -rf go through. As root, on a machine that does nothing else.
#
#   scripts/bench-ten-million.sh DIR [FILES [DIRECTORIES [BYTES]]]      COFS=path/to/cofs  MANY_FILES=path/to/many_files (else both are built)
#
# DIR is empty and lies on a local file system: the volume is made there, and removed. With one directory (the default) all files lie in it.
# The files are empty, or of BYTES bytes each.
set -euo pipefail
cd "$(dirname "$0")/.."

die() { echo "bench-ten-million: $*" >&2; exit 1; }
[[ $# -ge 1 && -d $1 && -z $(ls -A "$1") ]] || die "say an empty directory for a volume: scripts/bench-ten-million.sh DIR [FILES [DIRECTORIES [BYTES]]]"
((EUID == 0)) || die "dropping caches needs root"
DIR=$(cd "$1" && pwd)
FILES=${2:-10000000}
DIRECTORIES=${3:-1}
BYTES=${4:-0}
if [[ -z ${COFS:-} || -z ${MANY_FILES:-} ]]; then
    # shellcheck source=setup.sh
    . scripts/setup.sh
    cofs_setup
    cofs_cargo_dist build --locked --bin cofs
    cofs_cargo_dist build --locked -p cofs-bench --features bench --example many_files
    COFS=${COFS:-$CARGO_TARGET_DIR/dist/cofs} MANY_FILES=${MANY_FILES:-$CARGO_TARGET_DIR/dist/examples/many_files}
fi

MNT=$(mktemp -d)
DAEMON=
clean_up() {
    if findmnt -n "$MNT" >/dev/null; then "$COFS" umount "$MNT" || umount -l "$MNT"; fi
    rmdir "$MNT"
    rm -rf --one-file-system "$DIR/store"
}
trap clean_up EXIT

# Mounts the volume, with nothing of it in the machine's caches, and says how long that took until it served.
mounts() {
    local from
    sync
    echo 3 >/proc/sys/vm/drop_caches
    from=$EPOCHREALTIME
    # In a session of its own, as daemons are; the process itself serves, which is looked at and killed.
    setsid "$COFS" mount "$DIR/store" "$MNT" -o norestart &
    DAEMON=$!
    until findmnt -n "$MNT" >/dev/null && stat "$MNT" >/dev/null 2>&1; do
        [[ -d /proc/$DAEMON ]] || die "the volume could not be mounted"
        sleep 0.005
    done
    row "$1" "$(seconds "$from") s"
}

seconds() { awk -v a="$1" -v b="$EPOCHREALTIME" 'BEGIN { printf "%.2f", b - a }'; }
row() { printf '%-46s %s\n' "$1" "$2"; }
timed() {
    local words=$1 from=$EPOCHREALTIME said
    shift
    said=$("$@")
    row "$words" "$(seconds "$from") s${said:+, $said}"
}
most_memory() { row "memory of the daemon at most, $1" "$(awk '/^VmHWM/ { printf "%d MiB", $2 / 1024 }' "/proc/$DAEMON/status")"; }
unmounts() { timed "unmount" "$COFS" umount "$MNT"; wait "$DAEMON" || true; }
one() { printf '%s/files/d%05d' "$MNT" $((DIRECTORIES / 2)); }
# The first file of that directory (many_files numbers them through).
one_file() { printf '%s/f%08d' "$(one)" $((DIRECTORIES / 2 * ((FILES + DIRECTORIES - 1) / DIRECTORIES))); }

"$COFS" format "$DIR/store" >/dev/null
mounts "mount, empty"
mkdir "$MNT/files"
"$MANY_FILES" "$MNT/files" "$FILES" "$DIRECTORIES" "$BYTES"
most_memory "creating"
row "on disk" "$(du -sh "$DIR/store" | cut -f 1)"
kill -KILL "$DAEMON"
wait "$DAEMON" 2>/dev/null || true
"$COFS" umount --dead "$MNT"
mounts "mount after kill -9"
timed "ls -f of a directory" bash -c "ls -f '$(one)' | wc -l"
unmounts
mounts "mount after an unmount"
timed "stat of a file, the first" stat -c %s "$(one_file)"
timed "ls -l of a directory" bash -c "ls -l '$(one)' | wc -l"
timed "find -type f of all" bash -c "find '$MNT/files' -type f | wc -l"
((BYTES == 0)) || timed "cat of a directory" bash -c "find '$(one)' -type f -exec cat {} + | wc -c"
most_memory "listing"
timed "rm -rf of all" rm -rf "$MNT/files"
most_memory "removing"
unmounts
row "on disk" "$(du -sh "$DIR/store" | cut -f 1)"
timed "fsck" bash -c "\"$COFS\" fsck --quiet '$DIR/store' >/dev/null"
