#!/usr/bin/env bash
# What the interface to the kernel can do, and what of it is reached: hand-written loops over io_uring and /dev/fuse, the crate cofs-fuse
# with the same fixed answers, the null file system, and a volume of cofs, in turns, with 1, 2, 4 and 8 processes in one directory and in own
# ones. As root, on a machine that does nothing else; some five minutes. What it printed here stands in docs/measured.md.
#
#   scripts/bench-transports.sh DIR [OPTION...]      COFS=path/to/cofs  CEILING=path/to/ceiling (else both are built)
#
# DIR is empty and lies on a local file system: the volume is made there, and removed. OPTIONs are the example's (`ceiling --help`).
set -euo pipefail
cd "$(dirname "$0")/.."

die() { echo "bench-transports: $*" >&2; exit 1; }
[[ $# -ge 1 && -d $1 && -z $(ls -A "$1") ]] || die "say an empty directory for a volume: scripts/bench-transports.sh DIR"
((EUID == 0)) || die "mounting without a helper and dropping caches need root"
DIR=$(cd "$1" && pwd)
shift
if [[ -z ${COFS:-} || -z ${CEILING:-} ]]; then
    # shellcheck source=setup.sh
    . scripts/setup.sh
    cofs_setup
    cofs_cargo_dist build --locked --bin cofs
    cofs_cargo_dist build --locked -p cofs-fuse --example ceiling
    COFS=${COFS:-$CARGO_TARGET_DIR/dist/cofs} CEILING=${CEILING:-$CARGO_TARGET_DIR/dist/examples/ceiling}
fi

MNT=$(mktemp -d)
MOUNTED=
clean_up() {
    if [[ -n $MOUNTED ]]; then "$COFS" umount "$MNT" || umount -l "$MNT"; fi
    rmdir "$MNT"
    rm -rf --one-file-system "$DIR/store"
}
trap clean_up EXIT
"$COFS" format "$DIR/store"
# In a session of its own, as daemons are.
# Others may enter, as with the rest: so the kernel checks permissions everywhere.
setsid "$COFS" mount "$DIR/store" "$MNT" -o allow_other &
for ((n = 0; n < 300; n++)); do
    if findmnt -n "$MNT" >/dev/null; then MOUNTED=1; break; fi
    sleep 0.1
done
[[ -n $MOUNTED ]] || die "the volume could not be mounted"
"$CEILING" --with "cofs=$MNT" "$@"
