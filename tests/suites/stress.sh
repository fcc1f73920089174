# shellcheck shell=bash
# stress-ng's file stressors, each verifying what it did, for a second or two (long form: ten).

# The class filesystem, and those of other classes that work on files. What of that class is missing here stands in tests/ledger/stress.toml.
STRESSORS=(access chattr chdir chmod chown copy-file dentry dir dirdeep dirmany dnotify dup fallocate fanotify fcntl fiemap file-ioctl filename flock
    fpunch fsize fstat getdent handle hdd inode-flags inotify io iomix link locka lockf lockofd mknod open rename symlink
    sync-file touch utime verity xattr aiol lease mmap readahead seek sendfile
    splice vm-splice io-uring)

# Without these some would write gigabytes.
declare -A STRESSOR_OPTIONS=(
    [hdd]="--hdd-bytes 16m" [fallocate]="--fallocate-bytes 16m" [iomix]="--iomix-bytes 16m" [readahead]="--readahead-bytes 16m"
    [seek]="--seek-size 16m" [sync-file]="--sync-file-bytes 16m" [copy-file]="--copy-file-bytes 128m"
    [mmap]="--mmap-bytes 16m --mmap-file" [dirdeep]="--dirdeep-inodes 2000" [dirmany]="--dirmany-bytes 1k")

suite_stress() {
    local stressor seconds=1
    ((LONG)) && seconds=10
    mkdir -p "$MNT/stress"
    for stressor in "${STRESSORS[@]}"; do stress_case "$stressor" "$seconds"; done
    for stressor in $(stress_class); do
        [[ " ${STRESSORS[*]} " = *" $stressor "* ]] || stress_stands_in left-out "$stressor" ||
            skip "$CONFIG/stress/$stressor" "of the class filesystem, neither run nor in the ledger: another stress-ng"
    done
}

stress_class() { stress-ng --class 'filesystem?' 2>&1 | sed -n "s/^class 'filesystem' stressors: //p"; }

# stress_stands_in SECTION STRESSOR: whether the ledger has it there.
stress_stands_in() { sed -n "/^\[$1\]\$/,/^\[/p" tests/ledger/stress.toml | grep -q "^$2 = \""; }

stress_case() {
    local name=$CONFIG/stress/$1 log=$LOGS/${CONFIG//:/_}_stress_$1.log from=$EPOCHREALTIME status=0 outcome expected=passes section
    # shellcheck disable=SC2086 # options, to be split
    timeout --kill-after=10 $(($2 + 60)) stress-ng --verify --temp-path "$MNT/stress" --timeout "$2" --"$1" 2 \
        ${STRESSOR_OPTIONS[$1]:-} >"$log" 2>&1 </dev/null || status=$?
    outcome=$(stress_outcome "$status" "$log")
    for section in skips fails; do ! stress_stands_in "$section" "$1" || expected=$section; done
    if [[ $outcome = fails && $expected != fails ]]; then
        fail "$name" "exit status $status; $log"
        grep -E 'fail|error|range' "$log" | head -n 10 | sed 's/^/      | /' || true
    elif [[ $outcome = "$expected" || ($KIND = native && $outcome = passes) ]]; then
        pass "$name" 1 "$outcome$([[ $outcome = passes ]] || echo ', as the ledger says'), $(seconds_since "$from") s"
    elif [[ $outcome = skips ]]; then
        skip "$name" "stress-ng: status $status; $(grep -m1 -o 'skipp.*' "$log" || true)"
    else
        fail "$name" "$outcome, and stands in the ledger: $expected"
    fi
    find "$MNT/stress" -mindepth 1 -delete || fail "$name/left" "what it left cannot be removed"
}

# stress_outcome STATUS LOG: passes, skips or fails. stress-ng says 3 or 4, or 0 and a word, for what the machine or the file system lacks, and
# 7 where its own count of operations (not what it verifies) was caught in mid-step by the end of the time.
stress_outcome() {
    case $1 in
    0 | 3 | 4) if [[ $1 != 0 ]] || grep -q 'skipping' "$2"; then echo skips; else echo passes; fi ;;
    7) if grep -q 'successful run completed' "$2"; then echo passes; else echo fails; fi ;;
    *) echo fails ;;
    esac
}
