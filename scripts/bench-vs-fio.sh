#!/usr/bin/env bash
# Compares what `cofs bench ior` measures with what fio measures: the same bytes in the same pieces on the same file in DIR, which
# is written once before and never grows, in turns. Both write over it (with an fsync at the end) and read it, in order and at
# random, each piece once, from one buffer, through pread(2)/pwrite(2), without advice to the kernel, with nothing of it cached
# before. fio's random order is its lfsr: its default goes to the next piece that is left, which reads ahead well.
#
#   scripts/bench-vs-fio.sh DIR [MIB] [ROUNDS]      COFS=path/to/cofs  DIRECT=1 (past the page cache)
#
# For each of the four: the medians of both in MiB/s, the median of the rounds' ratios, and how far each one's own rounds lie apart.
# Rounds are even in number, so that each is as often the first of two; one round before them does not count.
set -euo pipefail
export LC_ALL=C.UTF-8

die() { echo "bench-vs-fio: $*" >&2; exit 1; }
[[ $# -ge 1 && -d $1 ]] || die "say a directory to measure in: scripts/bench-vs-fio.sh DIR [MIB] [ROUNDS]"
for program in fio jq; do
    command -v "$program" >/dev/null || die "$program is not installed; as root: apt-get install $program"
done
DIR=$1 MIB=${2:-256} ROUNDS=${3:-8}
COFS=${COFS:-target/release/cofs}
[[ -x $COFS ]] || die "$COFS is not there: build it, or say COFS=path/to/cofs"
((ROUNDS > 0 && ROUNDS % 2 == 0)) || die "$ROUNDS rounds: say an even number of them"
[[ -z $(ls -A "$DIR") ]] || die "$DIR is not empty: take an empty directory"
FILE=$DIR/cofs-bench-ior/testFile
DIRECT=${DIRECT:-0}
RESULTS=$(mktemp -d)
trap 'rm -rf "$RESULTS" "$DIR/cofs-bench-ior"' EXIT

# Only the file leaves the cache: to drop all caches would have the programs themselves read from the disk while they are measured.
drop() { sync "$FILE" && dd if="$FILE" of=/dev/null iflag=nocache count=0 status=none; }

ior() { "$COFS" bench ior "$@" -k -b "${MIB}M" -i 1 --beside --output json "$DIR"; }

# with_ior PATTERN PIECE ACCESS: MiB/s, from open to close.
with_ior() {
    local words=("$3" -t "$2")
    [[ $1 = random ]] && words+=(-z)
    [[ $3 = -w ]] && words+=(-E -e)
    ((DIRECT)) && words+=(-B)
    drop
    ior "${words[@]}" | jq -r '.rows[0].median.value' >>"$RESULTS/ior-$1$3"
}

# The same with fio, by the time that the job ran, which has the fsync in it.
with_fio() {
    local kind
    kind=$([[ $3 = -w ]] && echo write || echo read)
    [[ $1 = random ]] && kind=rand$kind
    drop
    fio --name=one --filename="$FILE" --rw="$kind" --bs="$2" --size="${MIB}M" --ioengine=psync --direct="$DIRECT" \
        --end_fsync=1 --overwrite=1 --fallocate=none --invalidate=0 --fadvise_hint=0 --random_generator=lfsr --gtod_reduce=1 \
        --scramble_buffers=0 --refill_buffers=0 --output-format=json |
        jq -r --arg mib "$MIB" '.jobs[0] | ($mib | tonumber) / (.job_runtime / 1000)' >>"$RESULTS/fio-$1$3"
}

ior -w -e -t 1M >/dev/null
for ((round = 0; round <= ROUNDS; round++)); do
    ((round != 1)) || rm -f "$RESULTS"/*
    for form in "sequential 1M" "random 4K"; do
        for access in -w -r; do
            # shellcheck disable=SC2086 # a form is two words
            if ((round % 2)); then
                with_ior $form $access
                with_fio $form $access
            else
                with_fio $form $access
                with_ior $form $access
            fi
        done
    done
done

# median FILE, spread FILE (from the least to the most, as a part of the median)
median() { sort -g "$1" | awk '{ v[NR] = $1 } END { print (v[int((NR + 1) / 2)] + v[int(NR / 2) + 1]) / 2 }'; }
spread() { sort -g "$1" | awk -v middle="$(median "$1")" '{ v[NR] = $1 } END { printf "%.0f", (v[NR] - v[1]) / middle * 100 }'; }
printf '%-18s %10s %10s %8s %12s %12s\n' "" "ior MiB/s" "fio MiB/s" ior/fio "ior spread" "fio spread"
for pattern in sequential random; do
    for access in -w -r; do
        a=$RESULTS/ior-$pattern$access b=$RESULTS/fio-$pattern$access
        printf '%-18s %10.0f %10.0f %8.2f %10s %% %10s %%\n' "$pattern $([[ $access = -w ]] && echo write || echo read)" \
            "$(median "$a")" "$(median "$b")" "$(median <(paste "$a" "$b" | awk '{ print $1 / $2 }'))" "$(spread "$a")" "$(spread "$b")"
    done
done
