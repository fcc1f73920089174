#!/usr/bin/env bash
# Makes the profile that optimised builds of cofs are laid out by (./quickstart does, where there is one for its compiler): builds cofs so
# that it counts, mounts a volume, and does to it what users do, small files above all. See docs/adr/0007-builds-by-a-profile.md.
# Six to fifteen minutes of two cores.
#
#   scripts/profile.sh          writes scripts/profiles/rustc-VERSION-HOST.profdata
#
# The profile is of this compiler and of this code: functions that have changed since are compiled as without one.
set -euo pipefail
cd "$(dirname "$0")/.."
ROOT=$PWD
die() { echo "profile: $*" >&2; exit 1; }
[[ $# -eq 0 ]] || die "there are no arguments; see the head of this file"

# shellcheck source=setup.sh
. scripts/setup.sh
cofs_setup
PROFILE=$(cofs_profile)
MERGE=$(dirname "$(rustc --print target-libdir)")/bin/llvm-profdata
[[ -x $MERGE ]] || rustup component add llvm-tools >&2 ||
    die "llvm-profdata of this compiler is missing ($MERGE), and rustup, which has it as llvm-tools, is not there or failed"

cargo build --profile dist --locked --bin cofs
BENCH=$CARGO_TARGET_DIR/dist/cofs

WORK=$(mktemp -d)
DAEMON=
clean_up() {
    if [[ -n $DAEMON ]]; then kill "$DAEMON" 2>/dev/null && wait "$DAEMON"; fi
    rm -rf --one-file-system "$WORK"
}
trap clean_up EXIT
cofs_cargo_with "-Cprofile-generate=$WORK/counts" build --profile dist --locked --bin cofs --target-dir "$CARGO_TARGET_DIR/counting"
# What the build's own programs counted.
rm -rf "$WORK/counts"

mkdir "$WORK/mnt"
"$CARGO_TARGET_DIR/counting/dist/cofs" mount --create "$WORK/store" "$WORK/mnt" -o norestart &
DAEMON=$!
for ((n = 0; n < 300; n++)); do
    findmnt -n "$WORK/mnt" >/dev/null && break
    sleep 0.1
done
findmnt -n "$WORK/mnt" >/dev/null || die "the volume could not be mounted"
for shape in "-p 1" "-p 4" "-p 4 --own"; do
    # shellcheck disable=SC2086 # several words
    "$BENCH" bench metarates "$WORK/mnt" --files 8000 $shape --repeats 2
done
"$BENCH" bench tree "$WORK/mnt" --files 10000
for copy in 1 2; do
    cp -r "$ROOT/crates" "$WORK/mnt/copy-$copy"
    find "$WORK/mnt/copy-$copy" -type f -exec cat {} + >/dev/null
    ls -lR "$WORK/mnt/copy-$copy" >/dev/null
    rm -r "$WORK/mnt/copy-$copy"
done
"$BENCH" umount "$WORK/mnt"
# It writes what it counted when it ends.
wait "$DAEMON"
DAEMON=
mkdir -p "$(dirname "$PROFILE")"
"$MERGE" merge --sparse -o "$PROFILE" "$WORK/counts"
echo "wrote $PROFILE ($(du -k "$PROFILE" | cut -f1) KiB)"
