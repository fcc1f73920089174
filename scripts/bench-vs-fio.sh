#!/usr/bin/env bash
# Compares what `cofs bench ior` measures with what fio measures: the same bytes in the same pieces on one file in DIR, in turns.
# Both write (with an fsync at the end) and read, in order and at random; fio through pread(2)/pwrite(2), as ior does.
#
#   scripts/bench-vs-fio.sh DIR [MIB] [ROUNDS]      COFS=path/to/cofs
#
# For each of the four: the medians of both in MiB/s, their ratio, and how far each one's own rounds lie apart.
set -euo pipefail
export LC_ALL=C.UTF-8

die() { echo "bench-vs-fio: $*" >&2; exit 1; }
[[ $# -ge 1 && -d $1 ]] || die "say a directory to measure in: scripts/bench-vs-fio.sh DIR [MIB] [ROUNDS]"
for program in fio jq; do
    command -v "$program" >/dev/null || die "$program is not installed; as root: apt-get install $program"
done
DIR=$1 MIB=${2:-256} ROUNDS=${3:-7}
COFS=${COFS:-target/release/cofs}
[[ -x $COFS ]] || die "$COFS is not there: build it, or say COFS=path/to/cofs"
[[ -z $(ls -A "$DIR") ]] || die "$DIR is not empty: take an empty directory"
RESULTS=$(mktemp -d)
trap 'rm -rf "$RESULTS" "$DIR/fio.file" "$DIR/cofs-bench-ior"' EXIT

drop() { sync; if [[ -w /proc/sys/vm/drop_caches ]]; then echo 3 >/proc/sys/vm/drop_caches; fi; }

# ior PATTERN PIECE: one write and one read; the file stays until the read.
ior() {
    local random=() document
    [[ $1 = random ]] && random=(-z)
    for access in -w -r; do
        drop
        document=$("$COFS" bench ior "${random[@]}" "$access" -k -e -b "${MIB}M" -t "$2" -i 1 --beside --output json "$DIR")
        jq -r '.rows[0].median.value' <<<"$document" >>"$RESULTS/ior-$1$access"
    done
    rm -rf "$DIR/cofs-bench-ior"
}

# The same with fio: in MiB/s, with the fsync in its time.
with_fio() {
    local kind document
    for access in -w -r; do
        kind=$([[ $access = -w ]] && echo write || echo read)
        [[ $1 = random ]] && kind=rand$kind
        drop
        # fio lays out a file before it writes at random; ior writes a new one.
        document=$(fio --name=one --filename="$DIR/fio.file" --rw="$kind" --bs="$2" --size="${MIB}M" --ioengine=psync \
            --end_fsync=1 --fallocate=none --invalidate=0 --file_append=0 --overwrite=0 --randrepeat=1 --norandommap=0 \
            --output-format=json)
        # By the time that the job ran, which has the fsync in it.
        jq -r --arg mib "$MIB" '.jobs[0] | ($mib | tonumber) / (.job_runtime / 1000)' <<<"$document" >>"$RESULTS/fio-$1$access"
    done
    rm -f "$DIR/fio.file"
}

for ((round = 1; round <= ROUNDS; round++)); do
    for form in "sequential 1M" "random 4K"; do
        read -r pattern piece <<<"$form"
        if ((round % 2)); then
            ior "$pattern" "$piece"
            with_fio "$pattern" "$piece"
        else
            with_fio "$pattern" "$piece"
            ior "$pattern" "$piece"
        fi
    done
done

# median FILE, spread FILE (from the least to the most, as a part of the median)
median() { sort -g "$1" | awk '{ v[NR] = $1 } END { print v[int((NR + 1) / 2)] }'; }
spread() { sort -g "$1" | awk '{ v[NR] = $1 } END { printf "%.0f", (v[NR] - v[1]) / v[int((NR + 1) / 2)] * 100 }'; }
printf '%-18s %10s %10s %8s %12s %12s\n' "" "ior MiB/s" "fio MiB/s" ior/fio "ior spread" "fio spread"
for pattern in sequential random; do
    for access in -w -r; do
        a=$RESULTS/ior-$pattern$access b=$RESULTS/fio-$pattern$access
        printf '%-18s %10.0f %10.0f %8.2f %10s %% %10s %%\n' "$pattern $([[ $access = -w ]] && echo write || echo read)" \
            "$(median "$a")" "$(median "$b")" "$(jq -n "$(median "$a") / $(median "$b")")" "$(spread "$a")" "$(spread "$b")"
    done
done
