# shellcheck shell=bash
# A tree of everything that a file system can hold, and whether two trees are the same.

# make_tree DIR: one of everything that an archive has to carry.
make_tree() {
    local n
    mkdir -p "$1"/{a,b/c/d,empty,sticky}
    for ((n = 0; n < 60; n++)); do head -c $((n * n * 37)) /dev/urandom >"$1/a/file $n"; done
    ln "$1/a/file 3" "$1/b/hard link"
    ln "$1/a/file 40" "$1/b/c/hard link of an object"
    ln -s ../a/file\ 3 "$1/b/symlink"
    ln -s /nowhere/at/all "$1/b/dangling"
    ln -s "$(printf 'x%.0s' {1..1500})" "$1/b/long"
    mkfifo "$1/b/fifo"
    mknod "$1/b/null" c 1 3
    mknod "$1/b/loop" b 7 300
    truncate -s 50M "$1/b/sparse"
    printf 'in the middle' | dd of="$1/b/sparse" bs=1 seek=20000000 conv=notrunc status=none
    printf 'x' | dd of="$1/b/small sparse" bs=1 seek=9000 conv=notrunc status=none
    : >"$1/b/nothing"
    printf 'not UTF-8' >"$1/b/"$'\xff\xfe name'
    : >"$1/b/$(printf 'n%.0s' {1..255})"
    setfattr -n user.short -v value "$1/a/file 1"
    setfattr -n user.long -v "$(printf 'v%.0s' {1..3000})" "$1/a/file 2"
    setfattr -n trusted.t -v 0x0001ff "$1/b"
    setfacl -m u:1234:rw,g:4321:r,m:rw "$1/a/file 4"
    setfacl -d -m u:1234:rwx "$1/b/c"
    chown 1000:2000 "$1/a/file 5"
    chmod 4755 "$1/a/file 6"
    chmod 2775 "$1/b/c/d"
    chmod 1777 "$1/sticky"
    touch -h -d '1999-12-31 23:59:59.123456789' "$1/b/symlink" "$1/a/file 7"
    touch -d '2040-01-02 03:04:05.987654321' "$1/a/file 8" "$1/empty"
}

# same_tree A B: same_content, and the holes are still holes.
same_tree() {
    same_content "$1" "$2" || return 1
    (($(stat -c %b "$2/b/sparse") < 2000)) || { echo "the hole of $2/b/sparse is filled" >&2; return 1; }
}

# same_content A B: rsync finds nothing to do, contents compared.
same_content() {
    local different
    different=$(rsync -aHAX --checksum --delete --dry-run --itemize-changes "$1/" "$2/")
    [[ -z $different ]] || { echo "not the same: $different" >&2; return 1; }
}
