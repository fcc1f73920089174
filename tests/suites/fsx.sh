# shellcheck shell=bash
# fsx: random operations on one file, every byte read compared. The profiles stand on both sides of the
# inline bound and cross it; each run's seed stands in its name, so that a failure can be repeated.

suite_fsx() {
    local profile seed operations=4000 seeds=(1 2 3)
    if ((LONG)); then operations=60000 seeds=(1 2 3 4 5 6 7 8 9 10); fi
    fsx_profiles
    mkdir -p "$MNT/fsx"
    for profile in inline boundary boundary-unmapped object; do
        for seed in "${seeds[@]}"; do
            run_case_within 300 "$CONFIG/fsx/$profile/$seed" "$TOOLS/fsx-0.3.2/bin/fsx" -q -f "$WORK/fsx-$profile.toml" \
                -N "$operations" -S "$seed" -P "$LOGS" "$MNT/fsx/$profile-$seed"
        done
    done
    run_case "$CONFIG/fsx/at-once" fsx_at_once "$operations"
}

# Several files at once, so that they meet in the daemon.
fsx_at_once() {
    local seed children=() status=0
    for seed in 101 102 103 104; do
        timeout --kill-after=10 300 "$TOOLS/fsx-0.3.2/bin/fsx" -q -f "$WORK/fsx-boundary.toml" -N "$1" -S "$seed" -P "$LOGS" \
            "$MNT/fsx/at-once-$seed" &
        children+=($!)
    done
    for seed in "${children[@]}"; do wait "$seed" || status=1; done
    return "$status"
}

fsx_profiles() {
    fsx_profile inline 6000 4096 1
    fsx_profile boundary 40000 12000 1
    fsx_profile boundary-unmapped 40000 12000 0
    fsx_profile object 1500000 65536 1
}

# fsx_profile NAME FILE_BYTES_MAX OPERATION_BYTES_MAX MAPPED
# No operation is of no bytes: fsx takes the EINVAL of posix_fallocate(2) for that, which ext4 gives too, for a file system without it.
fsx_profile() {
    cat >"$WORK/fsx-$1.toml" <<END
flen = $2
[opsize]
min = 1
max = $3
[weights]
close_open = 3
invalidate = $4
mapread = $(($4 * 10))
mapwrite = $(($4 * 10))
read = 10
write = 10
truncate = 4
fsync = 0.5
fdatasync = 0.5
posix_fallocate = 2
punch_hole = 3
sendfile = 3
posix_fadvise = 1
copy_file_range = 3
END
}
