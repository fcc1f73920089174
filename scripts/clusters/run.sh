#!/usr/bin/env bash
# What compare-clusters runs within its namespaces, as their first process: starts each cluster file system, mounts it and
# cofs over it, measures, and ends all of it.
#
# Invariants: whatever is mounted is noted when it is mounted, and taken away in the opposite order; a file system that cannot be
# started, or a run that fails, is told and noted, and the others go on; what is told here goes to OUT/log.
set -euo pipefail
# shellcheck disable=SC2153 # these are the environment's
: "${ROOT:?scripts/compare-clusters starts this}" "$WORK" "$OUT" "$COFS" "$ON" "$PROCESSES" "$MOUNTS" "$COFS_MOUNTS"
# shellcheck disable=SC2153
: "$FILES" "$FILES_DEFAULT" "$SWEEP" "$REPEATS" "$DATA_MIB"
cd "$ROOT"
umask 022
# shellcheck source=scripts/clusters/lib.sh
. "$ROOT/scripts/clusters/lib.sh"

# An address that no server refuses as that of a loop.
HOST_ADDRESS=10.77.0.1
HOST=cofs-clusters
# Small files whose bytes do not stay with the metadata (`format --inline-max`).
SMALL_KIB=64

declare -a MOUNTED=() NATIVE=() SERVED=() WRONG=()
STARTED='' CHILD=''

say() { printf '%s  %s\n' "$(date +%T)" "$*" >&2; }
wrong() { WRONG+=("$*") && say "FAILED: $*"; }

# ---- ending ---------------------------------------------------------------------------------------

# during COMMAND...: waits for it in such a way that a signal does not wait.
during() {
    local status=0
    "$@" &
    CHILD=$!
    wait "$CHILD" || status=$?
    CHILD=''
    return "$status"
}

# unmount MNT: in order, or by force.
unmount() {
    local n
    for ((n = 0; n < 20; n++)); do
        is_mounted "$1" || return 0
        ! timeout 60 umount "$1" 2>/dev/null || return 0
        sleep 0.3
    done
    say "$1 is still busy ($(users_of "$1")): it is taken away by force"
    umount -l "$1" || true
}

# users_of DIR: processes with a file open there.
users_of() {
    local process
    for process in /proc/[0-9]*; do
        if find "$process/fd" "$process/cwd" -lname "$1*" 2>/dev/null | grep -q .; then
            printf '%s %s; ' "${process#/proc/}" "$(tr '\0' ' ' <"$process/cmdline" 2>/dev/null)"
        fi
    done
}

unmount_all() {
    local at
    for ((at = ${#MOUNTED[@]} - 1; at >= 0; at--)); do unmount "${MOUNTED[at]}"; done
    MOUNTED=()
}

# unmount_last N: the N that were mounted last.
unmount_last() {
    local n
    for ((n = 0; n < $1; n++)); do
        unmount "${MOUNTED[-1]}"
        unset 'MOUNTED[-1]'
    done
}

# shellcheck disable=SC2317 # called by a trap
at_end() {
    set +e
    trap '' TERM INT HUP
    [[ -z $CHILD ]] || kill -TERM "$CHILD" 2>/dev/null
    [[ -z $STARTED ]] || stop_cluster
    unmount_all
}
trap at_end EXIT
trap 'exit 143' TERM HUP
trap 'exit 130' INT

# ---- the machine ----------------------------------------------------------------------------------

# Places that servers insist on are empty here, and nothing that is put there stays.
prepare() {
    local place
    hostname "$HOST"
    ip link set lo up
    ip address add "$HOST_ADDRESS/32" dev lo
    printf '127.0.0.1 localhost\n%s %s\n' "$HOST_ADDRESS" "$HOST" >"$WORK/hosts"
    mount --bind "$WORK/hosts" /etc/hosts
    for place in /run /var/log /var/lib/glusterd; do
        [[ ! -d $place ]] || mount -t tmpfs tmpfs "$place"
    done
    mkdir -p /run/lock /run/mount
    image local 12G
}

# image NAME SIZE: a fresh ext4 at $WORK/NAME, on a loop device that goes with its mount.
image() {
    truncate -s "$2" "$WORK/$1.img"
    mkfs.ext4 -q -F -E lazy_itable_init=1,lazy_journal_init=1 "$WORK/$1.img"
    mkdir -p "$WORK/$1"
    mount -o loop "$WORK/$1.img" "$WORK/$1"
    MOUNTED+=("$WORK/$1")
}

# ---- one cluster file system ----------------------------------------------------------------------

# cluster FUNCTION ARGUMENT...: one of clusters/NAME.sh, in a shell of its own, which ends at its first error.
cluster() {
    # shellcheck disable=SC2016 # expanded by that shell
    during bash -euo pipefail -c '. "$ROOT/scripts/clusters/lib.sh"; . "$ROOT/scripts/clusters/$1.sh"; shift; "$@"' cluster \
        "$STARTED" "$@" >>"$OUT/log" 2>&1 </dev/null
}

# start_cluster NAME MOUNTS: its servers, and so many clients; their directories for what is measured natively in NATIVE.
start_cluster() {
    local n mnt
    STARTED=$1
    image "$1" 24G
    cluster cluster_start "$WORK/$1" "$HOST" "$HOST_ADDRESS" || return 1
    NATIVE=()
    for ((n = 1; n <= $2; n++)); do
        mnt=$WORK/$1-$n
        mkdir -p "$mnt"
        MOUNTED+=("$mnt")
        cluster cluster_mount "$WORK/$1" "$HOST" "$HOST_ADDRESS" "$mnt" || return 1
        is_mounted "$mnt" || return 1
        ((n > 1)) || mkdir "$mnt/native"
        NATIVE+=("$mnt/native")
    done
}

stop_cluster() {
    local name=$STARTED
    # Clients first, then servers, then what these write on.
    while ((${#MOUNTED[@]} > 2)); do unmount_last 1; done
    cluster cluster_stop "$WORK/$name" || say "$TITLE could not be stopped in order; its namespace ends what is left"
    STARTED=''
    unmount "$WORK/$name"
    MOUNTED=("${MOUNTED[0]}")
    rm -f "$WORK/$name.img"
}

# volume_up NAME MOUNTS FORMAT-ARGUMENT...: formats a volume, mounts it so often; the mounts in SERVED.
volume_up() {
    local name=$1 mounts=$2 n mnt
    shift 2
    SERVED=()
    "$COFS" --quiet format "$@" >>"$OUT/log" 2>&1 || { wrong "$TITLE, $name: cofs format: $(tail -n 1 "$OUT/log")"; return 1; }
    for ((n = 1; n <= mounts; n++)); do
        mnt=$WORK/$name-$n
        mkdir -p "$mnt"
        if ! during timeout 60 "$COFS" mount -d --log-file "$OUT/cofs-$STARTED-$name.log" "$1" "$mnt" >>"$OUT/log" 2>&1; then
            wrong "$TITLE, $name: cofs mount: $(tail -n 1 "$OUT/log")"
            unmount_last "${#SERVED[@]}"
            return 1
        fi
        MOUNTED+=("$mnt")
        SERVED+=("$mnt")
    done
}

# volume_down NAME STORE: every byte below, and nothing wrong in it.
volume_down() {
    local name=$1 store=$2 mnt
    for mnt in "${SERVED[@]}"; do
        during timeout 120 "$COFS" umount "$mnt" >>"$OUT/log" 2>&1 ||
            wrong "$TITLE, $name: cofs umount: $(tail -n 1 "$OUT/log")"
    done
    unmount_last "${#SERVED[@]}"
    SERVED=()
    during timeout 120 "$COFS" --quiet fsck "$store" >>"$OUT/log" 2>&1 ||
        wrong "$TITLE, $name: cofs fsck found something, or could not look: $(tail -n 1 "$OUT/log")"
}

# ---- measuring ------------------------------------------------------------------------------------

# listed ITEM...: the items with commas between them.
listed() { local IFS=,; printf %s "$*"; }

mounts_of() { if (($1 == 1)); then echo "1 mount"; else echo "$1 mounts"; fi; }
processes_of() { if (($1 == 1)); then echo "1 process"; else echo "$1 processes"; fi; }

# pair NAME SUITE PROCESSES MOUNTS LABEL SUITE-ARGUMENT...: cofs in turns with so many native mounts.
pair() {
    local name=$1 suite=$2 processes=$3 mounts=$4 label=$5 result from=$SECONDS
    shift 5
    result=$OUT/$STARTED-$name-$suite-$label-p$processes-m$mounts.json
    local arguments=(bench "$suite" "${SERVED[0]}" --vs "${NATIVE[0]}" -p "$processes" --repeats "$REPEATS" --output json
        --group "$TITLE" --names "${TITLES[$name]},$CLUSTER_NAME $(mounts_of "$mounts")")
    if ((mounts > 1)); then arguments+=(--vs-mounts "$(listed "${NATIVE[@]:1:mounts-1}")"); fi
    if ((${#SERVED[@]} > 1)); then arguments+=(--mounts "$(listed "${SERVED[@]:1}")"); fi
    if during timeout 900 "$COFS" --quiet "${arguments[@]}" "$@" >"$result" 2>"$WORK/said"; then
        say "$TITLE, ${TITLES[$name]}: $suite $label, $(processes_of "$processes"), $(mounts_of "$mounts"): $((SECONDS - from)) s"
        return 0
    fi
    cat "$WORK/said" >>"$OUT/log"
    rm -f "$result"
    wrong "$TITLE, $name: $suite $label, $(processes_of "$processes"), $(mounts_of "$mounts"): $(tail -n 1 "$WORK/said")"
    # What it left would be in the way of the next one.
    local left
    for left in "${SERVED[0]}" "${NATIVE[0]}"; do
        during timeout 300 "$COFS" --quiet bench clean "$left" >>"$OUT/log" 2>&1 || true
    done
}

# measure NAME: the volume that is served, against the native mounts.
measure() {
    local name=$1 processes mounts most files own
    for processes in "${EACH_PROCESSES[@]}"; do
        most=$(most_mounts "$processes")
        for own in '' -own; do
            for mounts in "${EACH_MOUNTS[@]}"; do
                # A mount without a process is none; and the second volume is compared with the most mounts only.
                if ((mounts > processes)) || [[ $name != cofs && $mounts != "$most" ]]; then continue; fi
                pair "$name" metarates "$processes" "$mounts" "$FILES$own" --files "$FILES" ${own:+"-$own"}
            done
        done
        data "$name" "$processes" "$most"
    done
    [[ $name = cofs && $SWEEP != 0 ]] || return 0
    processes=$(most_below 4 "${EACH_PROCESSES[@]}")
    most=$(most_mounts "$processes")
    for files in ${SWEEP//,/ }; do
        ((files != FILES && files > 0)) || continue
        for own in '' -own; do
            pair "$name" metarates "$processes" "$most" "$files$own" --files "$files" ${own:+"-$own"}
        done
    done
}

# data NAME PROCESSES MOUNTS: small files that are no inline data, and large ones, each read by another process than the one that wrote it.
data() {
    local name=$1 processes=$2 mounts=$3 each own
    each=$(((FILES / 2 + processes - 1) / processes))
    local stride=() others=()
    if ((processes > 1)); then stride=(-N 1) others=(-C); fi
    for own in '' -u; do
        pair "$name" mdtest "$processes" "$mounts" "small${own:+-own}" -F -n "$each" -w "${SMALL_KIB}K" -e "${SMALL_KIB}K" \
            ${own:+"$own"} "${stride[@]}"
    done
    for own in '' -F; do
        pair "$name" ior "$processes" "$mounts" "large${own:+-own}" -w -r -e -t 1M -b "$((DATA_MIB / processes))M" --drop-caches \
            ${own:+"$own"} "${others[@]}"
    done
}

# most_below LIMIT NUMBER...: the greatest that is not above, or else the least.
most_below() {
    local limit=$1 number best=''
    shift
    for number in "$@"; do
        if ((number <= limit)) && { [[ -z $best ]] || ((number > best)); }; then best=$number; fi
    done
    echo "${best:-$1}"
}

most_mounts() { most_below "$1" "${EACH_MOUNTS[@]}"; }

# Files for this file system, if nobody said: fewer where everything takes longer, but enough for each process.
files_here() {
    local files=$((FILES_DEFAULT / CLUSTER_SLOWNESS)) least
    least=$((8 * $(most_below 64 "${EACH_PROCESSES[@]}")))
    echo $((files > least ? files : least))
}

compare() {
    local name=$1
    # shellcheck source=scripts/clusters/gluster.sh
    . "$ROOT/scripts/clusters/$name.sh"
    TITLE="$CLUSTER_NAME $(cluster_version)"
    local FILES=${FILES:-$(files_here)}
    local SWEEP=${SWEEP:-$((FILES / 4 > 32 ? FILES / 4 : 32)),$FILES,$((FILES * 4))}
    declare -gA TITLES=([cofs]="cofs" [wholly]="cofs wholly on it")
    say "starting $TITLE"
    if start_cluster "$name" "$(most_below 64 "${EACH_MOUNTS[@]}")"; then
        local store=${NATIVE[0]%/native}
        # As a user has it: the metadata on the local disk, the bytes of files in the cluster.
        if volume_up cofs "$COFS_MOUNTS" "$store/cofs" --meta "$WORK/local/meta-$name"; then
            measure cofs
            volume_down cofs "$store/cofs"
        fi
        # And nothing on the local disk.
        if volume_up wholly "$COFS_MOUNTS" "$store/wholly"; then
            measure wholly
            volume_down wholly "$store/wholly"
        fi
    else
        wrong "$TITLE does not start: $(tail -n 1 "$OUT/log"); $OUT/log"
    fi
    say "stopping $TITLE"
    stop_cluster
}

IFS=, read -ra EACH_PROCESSES <<<"$PROCESSES"
IFS=, read -ra EACH_MOUNTS <<<"$MOUNTS"
IFS=, read -ra NAMES <<<"$ON"
prepare
for NAME in "${NAMES[@]}"; do compare "$NAME"; done

shopt -s nullglob
RESULTS=("$OUT"/*.json)
if ((${#RESULTS[@]})); then
    "$COFS" bench report "${RESULTS[@]}" -o "$OUT/report.html" --title "cofs over cluster file systems" \
        --note "Servers, clients and cofs share one machine. Each of several native mounts is a client of its own and stands for a \
node; processes take them in turn. cofs has $(mounts_of "$COFS_MOUNTS")$( ((COFS_MOUNTS > 1)) || echo ", so all its processes are on one node")." \
        --note "cofs: its metadata, and with them the bytes of files up to 16 KiB, lie on a local disk; the bytes of larger files in the cluster \
file system. cofs wholly on it: nothing lies on the local disk." \
        --note "metarates does to empty files what the COFS paper did (create, open, stat, utime), removes them, and writes and reads small ones; \
'again' is done to what was done just before, 'cold' after all caches of the machine were dropped. In mdtest and ior each process looks at and \
reads what another one wrote; ior writes with fsync and drops caches before it reads."
    say "$OUT/report.html"
fi
for ONE in "${WRONG[@]}"; do say "not measured, or wrong: $ONE"; done
((${#WRONG[@]} == 0 && ${#RESULTS[@]} > 0))
