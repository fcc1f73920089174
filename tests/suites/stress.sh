# shellcheck shell=bash
# stress-ng's file stressors, each verifying what it did, for a second or two (long form: ten).

# The class filesystem without what asks for something other than the directory under test (binderfs, bind-mount, dnotify,
# eventfd, fanotify, inotify, ioprio, procfs), plus those of other classes that work on files; without io-uring, which fails on
# ext4 and XFS too (stress-ng 0.15 asks for the status of a file that it has removed).
STRESSORS=(access chattr chdir chmod chown copy-file dentry dir dirdeep dirmany dup fallocate fcntl fiemap file-ioctl filename flock
    fpunch fsize fstat getdent handle hdd inode-flags io iomix link locka lockf lockofd mknod open rename symlink
    sync-file touch utime verity xattr aiol lease mmap readahead seek sendfile
    splice vm-splice)

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
}

# stress-ng says 3 or 4 for what the machine or the file system lacks, and 7 where its own count of operations (not what it verifies)
# was caught in mid-step by the end of the time.
stress_case() {
    local name=$CONFIG/stress/$1 log=$LOGS/${CONFIG//:/_}_stress_$1.log from=$EPOCHREALTIME status=0
    # shellcheck disable=SC2086 # options, to be split
    timeout --kill-after=10 $(($2 + 60)) stress-ng --verify --temp-path "$MNT/stress" --timeout "$2" --"$1" 2 \
        ${STRESSOR_OPTIONS[$1]:-} >"$log" 2>&1 </dev/null || status=$?
    if ((status == 7)) && ! grep -q 'successful run completed' "$log"; then status=1; fi
    case $status in
    0 | 7) pass "$name" 1 "$(seconds_since "$from") s" ;;
    3 | 4) skip "$name" "stress-ng: status $status; $(grep -m1 -o 'skipp.*' "$log" || true)" ;;
    *)
        fail "$name" "exit status $status; $log"
        grep -E 'fail|error|range' "$log" | head -n 10 | sed 's/^/      | /' || true
        ;;
    esac
    find "$MNT/stress" -mindepth 1 -delete || fail "$name/left" "what it left cannot be removed"
}
