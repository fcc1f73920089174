# shellcheck shell=bash
# ./quickstart from one end to the other, twice, on a small tree and with the program under test, as root and as an ordinary user; and every
# command that it names at its end. (That it builds, nothing here tries.)

# shellcheck source=unprivileged.sh
. tests/suites/unprivileged.sh

QUICKSTART_WORKS=11 # lines of rates

# It chooses transport and data path by itself, so that once is enough.
suite_quickstart() {
    local lacks
    [[ $CONFIG = "${CONFIGS[0]}" ]] || return 0
    if [[ -e $URING_SWITCH ]]; then URING_WAS=${URING_WAS:-$(cat "$URING_SWITCH")}; fi # root's run switches it on
    THEIRS=$WORK/quick
    mkdir -p "$THEIRS"
    # Names with a blank: the commands are to stand there as one has to type them.
    quickstart_story quickstart env "$COFS" "$WORK/a mount" "$BELOW/a store" "$WORK/a mount"
    lacks=$(unprivileged_lacks)
    if [[ -n $lacks ]]; then
        skip quickstart/user "$lacks"
    else
        quickstart_as_user
    fi
    rm -rf --one-file-system "$THEIRS" "$BELOW/a store"
}

# With the directories that it takes when none is named: its own.
quickstart_as_user() {
    mkdir -p "$THEIRS/home" "$THEIRS/scripts"
    install -m 755 "$COFS" "$THEIRS/cofs"
    cp -r quickstart crates "$THEIRS/"
    cp scripts/setup.sh "$THEIRS/scripts/"
    chown -R "$UNPRIVILEGED:$UNPRIVILEGED" "$THEIRS"
    fuse_for_everybody
    quickstart_story quickstart/user as_user ./cofs "$THEIRS/demo/mnt"
    fuse_as_before
}

# quickstart_story NAME AS PROGRAM MOUNT [ARGUMENT...]: the two runs, and what each leads to; AS is a command that makes us somebody.
quickstart_story() {
    local name=$1 as=$2 mnt=$4 said=$THEIRS/said
    local line=("$as" timeout --kill-after=10 120 env COFS_QUICKSTART_PROGRAM="$3" COFS_QUICKSTART_TREE=crates COFS_QUICKSTART_LARGE_MIB=24 ./quickstart "${@:5}")
    MOUNTS+=("$mnt")
    run_case "$name/works" quickstart_works "$said" "$mnt" "${line[@]}"
    run_case "$name/what-it-names-works" quickstart_named "$said" "$mnt" "$as"
    run_case "$name/works-again" quickstart_again "$said" "$mnt" "${line[@]}"
    run_case "$name/umount" quickstart_umount "$said" "$mnt" "$as"
    if mountpoint -q "$mnt"; then "$as" "$3" umount "$mnt" || umount -l "$mnt"; fi
    forget MOUNTS "$mnt"
}

# quickstart_works SAID MOUNT COMMAND...
quickstart_works() {
    local said=$1 mnt=$2
    shift 2
    "$@" >"$said"
    cat "$said"
    [[ $(grep -Ec ' +[0-9]+ +[0-9]+ (files|MiB)/s +[0-9]+\.[0-9]{2}$' "$said") = "$QUICKSTART_WORKS" ]]
    grep -E '^checksums: all [1-9][0-9]+ files are the same above and below$' "$said"
    [[ $(quickstart_commands "$said" | wc -l) = 7 ]]
    [[ $(findmnt -n -o FSTYPE --mountpoint "$mnt") = fuse.cofs ]]
    [[ -z $(find "$(dirname "$(findmnt -n -o SOURCE --mountpoint "$mnt")")" -name 'quickstart-scratch*') ]]
}

quickstart_commands() { sed -n '/ Next:$/,$s/^    //p' "$1"; }

# All of them, in their order; one of them unmounts, another mounts again.
quickstart_named() {
    local said=$1 mnt=$2
    quickstart_commands "$said" >"$THEIRS/commands"
    "$3" bash -euxc "$(cat "$THEIRS/commands")"
    [[ $(findmnt -n -o FSTYPE --mountpoint "$mnt") = fuse.cofs ]]
}

quickstart_again() {
    quickstart_works "$@"
    grep -q '^already formatted$' "$1"
    grep -q '^already mounted$' "$1"
}

quickstart_umount() {
    "$3" bash -euxc "$(quickstart_commands "$1" | grep ' umount ')"
    [[ -z $(findmnt -n --mountpoint "$2") ]]
}
