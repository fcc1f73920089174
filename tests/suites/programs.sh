# shellcheck shell=bash
# Real programs on a mount, each judged by its own checker: git, cargo, make, SQLite, rsync, tar.

suite_programs() {
    local name
    PROGRAMS=$MNT/programs
    mkdir -p "$PROGRAMS"
    for name in git cargo make sqlite_delete sqlite_wal sqlite_mmap rsync tar; do
        run_case "$CONFIG/programs/${name/_/-}" "program_$name"
    done
}

# A repository with a history, cloned in the mount, from there out, and back; fsck of each.
program_git() {
    local origin=$PROGRAMS/origin git=(git -c user.name=test -c user.email=test@example.org -c init.defaultBranch=main)
    export GIT_CONFIG_GLOBAL=/dev/null GIT_CONFIG_NOSYSTEM=1
    "${git[@]}" init -q "$origin"
    cp -a crates Cargo.toml Cargo.lock "$origin"
    "${git[@]}" -C "$origin" add -A
    "${git[@]}" -C "$origin" commit -qm one
    local n
    for n in 1 2 3 4 5; do
        find "$origin/crates" -name '*.rs' | sort | sed -n "${n}~7p" | while read -r file; do echo "// $n" >>"$file"; done
        "${git[@]}" -C "$origin" commit -qam "change $n"
        "${git[@]}" -C "$origin" branch "b$n"
    done
    "${git[@]}" clone -q --no-local "$origin" "$PROGRAMS/clone"
    "${git[@]}" clone -q --local "$origin" "$PROGRAMS/hard-linked"
    "${git[@]}" clone -q --no-local "$PROGRAMS/clone" "$WORK/clone.$$"
    for n in "$origin" "$PROGRAMS/clone" "$PROGRAMS/hard-linked" "$WORK/clone.$$"; do
        "${git[@]}" -C "$n" fsck --full --strict
        "${git[@]}" -C "$n" diff --exit-code
        "${git[@]}" -C "$n" gc -q --prune=now
        "${git[@]}" -C "$n" fsck --full --strict
        [[ -z $("${git[@]}" -C "$n" status --porcelain) ]]
    done
    diff -r --exclude=.git "$PROGRAMS/clone" "$WORK/clone.$$"
    "${git[@]}" -C "$PROGRAMS/clone" checkout -q -b other HEAD~3
    "${git[@]}" -C "$PROGRAMS/clone" merge -q main
    "${git[@]}" -C "$PROGRAMS/clone" worktree add -q "$PROGRAMS/worktree" main
    rm -rf "$WORK/clone.$$" "$PROGRAMS/worktree" "$PROGRAMS/hard-linked"
}

# A room of this project, built and tested with sources and target both in the mount.
program_cargo() {
    local top=$PROGRAMS/cargo
    mkdir -p "$top"
    cp -a crates Cargo.toml Cargo.lock "$top"
    (cd "$top" && CARGO_TARGET_DIR=$top/target cargo test --offline --locked -p cofs-types)
    # What was built before counts as built: time stamps hold.
    touch "$top/crates/cofs-types/src/lib.rs"
    (cd "$top" && CARGO_TARGET_DIR=$top/target cargo build --offline --locked -p cofs-types)
    (cd "$top" && CARGO_TARGET_DIR=$top/target cargo build --offline --locked -p cofs-types) 2>&1 | tee "$WORK/cargo.log"
    if grep -q Compiling "$WORK/cargo.log"; then return 1; fi
    rm -rf "$top"
}

# lz4 by its own makefiles, and what they made at work; the sources are those that the registry gave to this build.
program_make() {
    local source
    source=$(find "${CARGO_HOME:-$HOME/.cargo}/registry/src" -maxdepth 3 -path '*/lz4-sys-*/liblz4' | head -n 1)
    [[ -n $source ]] || { echo "no sources of lz4 in cargo's registry" >&2; return 1; }
    cp -r "$source" "$PROGRAMS/lz4"
    make -C "$PROGRAMS/lz4" -j2 lib lz4
    make -C "$PROGRAMS/lz4" install DESTDIR="$PROGRAMS/lz4-installed"
    tar -C "$PROGRAMS/lz4" -cf - . | "$PROGRAMS/lz4-installed/usr/local/bin/lz4" -9 >"$PROGRAMS/lz4.tar.lz4"
    mkdir "$PROGRAMS/lz4-unpacked"
    "$PROGRAMS/lz4/lz4" -dc "$PROGRAMS/lz4.tar.lz4" | tar -C "$PROGRAMS/lz4-unpacked" -xf -
    diff -r "$PROGRAMS/lz4" "$PROGRAMS/lz4-unpacked"
    make -C "$PROGRAMS/lz4" clean
}

program_sqlite_delete() { sqlite_writers delete ''; }
program_sqlite_wal() { sqlite_writers wal ''; }
program_sqlite_mmap() { sqlite_writers wal 'pragma mmap_size=67108864;'; }

# Four processes insert into one database at once; each of their rows is there afterwards.
sqlite_writers() {
    local db=$PROGRAMS/$1${2:+-mmap}.db writer n children=()
    sqlite3 "$db" "pragma journal_mode=$1; create table t (writer int, n int, text text); create index i on t (writer, n);"
    for writer in 1 2 3 4; do
        for ((n = 0; n < 60; n++)); do
            echo "begin immediate; insert into t values ($writer, $n, hex(randomblob(700))); commit;"
            ((n % 10)) || echo "select count(*) from t;"
        done | sqlite3 -bail -cmd '.timeout 60000' ${2:+-cmd "$2"} "$db" >"$WORK/sqlite.$writer" &
        children+=($!)
    done
    for writer in "${children[@]}"; do wait "$writer"; done
    [[ $(sqlite3 "$db" 'pragma integrity_check') = ok ]]
    [[ $(sqlite3 "$db" 'select count(*), count(distinct writer * 1000 + n) from t') = '240|240' ]]
    sqlite3 "$db" 'delete from t where n % 2; vacuum'
    [[ $(sqlite3 "$db" 'pragma integrity_check; select count(*) from t') = $'ok\n120' ]]
    if [[ $1 = wal ]]; then
        [[ ! -e $db-wal ]] # the last connection folds it in and removes it
    fi
}

program_rsync() {
    local native=$WORK/tree.$$
    rm -rf "$native"
    make_tree "$native"
    rsync -aHAX --sparse "$native/" "$PROGRAMS/tree/"
    same_tree "$native" "$PROGRAMS/tree"
    rsync -aHAX --sparse "$PROGRAMS/tree/" "$native.back/"
    same_tree "$native" "$native.back"
    same_tree "$PROGRAMS/tree" "$native.back"
    rsync -aHAX --sparse "$PROGRAMS/tree/" "$PROGRAMS/tree.again/"
    same_tree "$PROGRAMS/tree" "$PROGRAMS/tree.again"
    # A difference must be seen, or the above proves nothing.
    printf x | dd of="$native.back/a/file 40" bs=1 seek=100 conv=notrunc status=none
    if same_tree "$native" "$native.back" 2>/dev/null; then return 1; fi
    rm -rf "$native" "$native.back" "$PROGRAMS/tree.again"
}

program_tar() {
    local pack=(tar --acls --xattrs --xattrs-include='*' --sparse --format=posix)
    make_tree "$PROGRAMS/packed"
    "${pack[@]}" -C "$PROGRAMS/packed" -cf "$PROGRAMS/packed.tar" .
    mkdir -p "$PROGRAMS/unpacked" "$WORK/unpacked.$$"
    "${pack[@]}" -C "$PROGRAMS/unpacked" -xpf "$PROGRAMS/packed.tar"
    "${pack[@]}" -C "$PROGRAMS/unpacked" --compare -f "$PROGRAMS/packed.tar"
    same_tree "$PROGRAMS/packed" "$PROGRAMS/unpacked"
    "${pack[@]}" -C "$WORK/unpacked.$$" -xpf "$PROGRAMS/packed.tar"
    same_tree "$PROGRAMS/packed" "$WORK/unpacked.$$"
    rm -rf "$WORK/unpacked.$$"
}
