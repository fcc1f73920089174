# shellcheck shell=bash
# fio with verification: what was written through each of the kernel's ways into a file is read back and compared.

suite_fio() {
    local engine direct pattern size=24m
    ((LONG)) && size=256m
    mkdir -p "$MNT/fio"
    for engine in psync libaio io_uring mmap; do
        for direct in 0 1; do
            [[ $engine$direct = mmap1 ]] && continue # a mapping goes through the page cache
            for pattern in write randwrite; do
                fio_case "$engine-$pattern-direct$direct" --ioengine=$engine --direct=$direct --rw=$pattern --bs=4k --size=$size
            done
        done
    done
    truncate -s $size "$MNT/fio/mixed-sizes.0.0" # or the second run would find it too short and lay it out anew
    fio_case mixed-sizes --ioengine=psync --rw=randwrite --bsrange=512-64k --bs_unaligned=1 --size=$size
    fio_case large-blocks --ioengine=libaio --direct=1 --iodepth=8 --rw=randwrite --bs=1m --size=$size
    fio_case small-files --ioengine=psync --rw=write --bs=1k --nrfiles=300 --filesize=1k-40k --openfiles=20 --file_service_type=random
    fio_case small-files-mapped --ioengine=mmap --rw=randwrite --bs=4k --nrfiles=60 --filesize=4k-64k --openfiles=10
    fio_case fsync --ioengine=psync --rw=randwrite --bs=4k --size=4m --fsync=16
    fio_case four-jobs --ioengine=psync --rw=randwrite --bs=4k --size=8m --numjobs=4
}

# fio_case NAME OPTIONS...: writes and verifies, then verifies once more from what is stored.
fio_case() {
    local name=$1
    shift
    run_case "$CONFIG/fio/$name" fio_twice "$name" "$@"
}

fio_twice() {
    local name=$1 common
    shift
    common=(fio --name="$name" --directory="$MNT/fio" --randseed=7 --verify=crc32c --verify_fatal=1 --iodepth=4
        --group_reporting --thread=0 --fallocate=none --verify_state_save=0 "$@")
    timeout --kill-after=10 200 "${common[@]}" --do_verify=1
    echo 1 >/proc/sys/vm/drop_caches
    timeout --kill-after=10 200 "${common[@]}" --verify_only
    rm -f "$MNT/fio/$name".*
}
