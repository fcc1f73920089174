# shellcheck shell=bash
# An ordinary user's volume: he mounts it through fusermount3, works, loses the daemon, mounts again and unmounts;
# and what the superuser and other users see of it, without allow_other and with it.

UNPRIVILEGED=65534 # nobody; and one more user, who has nothing here
STRANGER=65533

suite_unprivileged() {
    local name=$CONFIG/unprivileged lacks
    lacks=$(unprivileged_lacks)
    if [[ -n $lacks ]]; then
        skip "$name" "$lacks"
        return 0
    fi
    [[ $KIND != native ]] || return 0
    THEIRS=$WORK/user THEIR_STORE=$BELOW/user-store
    rm -rf --one-file-system "$THEIRS" "$THEIR_STORE"
    mkdir -p "$THEIRS"/{mnt,home} "$THEIR_STORE"
    install -m 755 "$COFS" "$THEIRS/cofs" # the build may stand where others must not look
    cp -r crates "$THEIRS/home/crates"
    chown -R "$UNPRIVILEGED:$UNPRIVILEGED" "$THEIRS" "$THEIR_STORE"
    fuse_for_everybody
    fuse_conf ''
    unprivileged_story "$name"
    fuse_conf_as_before
    fuse_as_before
    rm -rf --one-file-system "$THEIRS" "$THEIR_STORE"
}

unprivileged_lacks() {
    if [[ ! -u $(command -v fusermount3) ]]; then
        echo "fusermount3 is not set-user-id root"
    elif [[ ! -f /etc/fuse.conf ]]; then
        echo "no /etc/fuse.conf"
    elif ! THEIRS=/ as_user true; then
        echo "no other user can be played"
    fi
}

unprivileged_story() {
    run_case "$1/format" as_user "$THEIRS/cofs" format "$THEIR_STORE"
    unprivileged_up "$1/mount" '' || return 0
    run_case "$1/mounted" unprivileged_mounted
    run_case "$1/git" unprivileged_git
    run_case "$1/files" unprivileged_files
    run_case "$1/closed-to-others" unprivileged_closed
    run_case "$1/rights" unprivileged_rights
    kill -KILL "$THEIR_DAEMON"
    wait "$THEIR_DAEMON" 2>/dev/null || true
    run_case "$1/umount-after-kill" unprivileged_umount
    unprivileged_up "$1/mount-after-kill" '' || return 0
    run_case "$1/what-was-there-is-there" unprivileged_same
    run_case "$1/umount" unprivileged_umount
    run_case "$1/fsck" as_user "$THEIRS/cofs" fsck "$THEIR_STORE"
    run_case "$1/allow-other-needs-leave" unprivileged_refused
    fuse_conf user_allow_other
    unprivileged_up "$1/mount-allow-other" ,allow_other || return 0
    run_case "$1/open-to-others" unprivileged_open
    run_case "$1/umount-again" unprivileged_umount
}

# as_user COMMAND...: as the user, with nothing of ours about him. AS_UID plays another.
as_user() {
    (
        cd "$THEIRS" && exec setpriv --reuid="${AS_UID:-$UNPRIVILEGED}" --regid="${AS_UID:-$UNPRIVILEGED}" --clear-groups \
            env -i PATH="$PATH" LC_ALL=C.UTF-8 TZ=UTC HOME="$THEIRS/home" GIT_CONFIG_NOSYSTEM=1 "$@"
    )
}

# unprivileged_up NAME WORDS: the user mounts; that the mount serves him is a case. Nobody watches over the process, which is $THEIR_DAEMON: it is to die.
unprivileged_up() {
    (
        cd "$THEIRS" && exec setpriv --reuid="$UNPRIVILEGED" --regid="$UNPRIVILEGED" --clear-groups env -i PATH="$PATH" \
            "$THEIRS/cofs" mount "$THEIR_STORE" "$THEIRS/mnt" -o "norestart,transport=$TRANSPORT$2"
    ) >>"$LOGS/daemon.log" 2>&1 </dev/null &
    THEIR_DAEMON=$!
    DAEMONS+=("$THEIR_DAEMON")
    MOUNTS+=("$THEIRS/mnt")
    if serves "$THEIR_DAEMON" "$THEIRS/mnt" as_user; then
        serves_by "$TRANSPORT" "$1" as_user "$THEIRS/cofs" status mnt || return 1
        pass "$1"
        return 0
    fi
    fail "$1" "does not serve; $LOGS/daemon.log"
    tail -n 20 "$LOGS/daemon.log"
    return 1
}

unprivileged_umount() {
    as_user "$THEIRS/cofs" umount mnt
    wait_gone "$THEIR_DAEMON" 300
    [[ -z $(findmnt -n "$THEIRS/mnt") ]]
}

# The daemon and the root are his, and the kernel takes the mount for a user's.
unprivileged_mounted() {
    local options
    [[ $(awk '/^Uid:/ { print $2, $3 }' "/proc/$THEIR_DAEMON/status") = "$UNPRIVILEGED $UNPRIVILEGED" ]]
    [[ $(as_user stat -c %u mnt) = "$UNPRIVILEGED" ]]
    options=,$(findmnt -n -o OPTIONS "$THEIRS/mnt"),
    echo "$options"
    [[ $options = *,nosuid,* && $options = *,nodev,* && $options = *,user_id=$UNPRIVILEGED,* && $options != *,allow_other,* ]]
    as_user "$THEIRS/cofs" status mnt
}

# Into the mount, within it and out of it again.
unprivileged_git() {
    local git=(as_user git -c user.name=test -c user.email=test@example.org -c init.defaultBranch=main) n
    "${git[@]}" init -q home/origin
    as_user cp -r home/crates home/origin/
    "${git[@]}" -C home/origin add -A
    "${git[@]}" -C home/origin commit -qm one
    "${git[@]}" clone -q --no-local home/origin mnt/clone
    "${git[@]}" clone -q mnt/clone mnt/second
    as_user sh -c 'echo more >>mnt/second/crates/cofs/Cargo.toml'
    "${git[@]}" -C mnt/second commit -qam two
    "${git[@]}" clone -q --no-local mnt/second home/third
    for n in mnt/clone mnt/second home/third; do
        "${git[@]}" -C "$n" fsck --full --strict
        [[ -z $("${git[@]}" -C "$n" status --porcelain) ]]
    done
    "${git[@]}" -C mnt/second gc -q --prune=now
    [[ $("${git[@]}" -C home/third log --format=%s) = $'two\none' ]]
}

# A few thousand files of all sizes, some renamed, some removed; what there should be stands outside.
unprivileged_files() {
    as_user bash -euc '
        head -c 3000000 /dev/urandom >home/random
        for ((n = 0; n < 3000; n++)); do
            ((n % 300)) || mkdir "mnt/$((n / 300))"
            head -c $((n * 13)) home/random >"mnt/$((n / 300))/$n"
        done
        for ((n = 0; n < 3000; n += 7)); do mv "mnt/$((n / 300))/$n" "mnt/0/renamed-$n"; done
        for ((n = 1; n < 3000; n += 5)); do rm -f "mnt/$((n / 300))/$n"; done
        ln mnt/0/renamed-7 mnt/1/linked
        ln -s ../0/renamed-14 mnt/1/symbolic
        cp home/random mnt/large
        chmod 640 mnt/large
        chmod 600 mnt/0/renamed-7
        cd mnt
        find . -type f -print0 | sort -z | xargs -0 sha256sum >../home/sums
        find . -printf "%p %y %m %U %n %T@ %l\n" | sort >../home/list
        (($(wc -l <../home/sums) > 2400))'
}

unprivileged_same() {
    as_user bash -euc 'cd mnt
        sha256sum --quiet -c ../home/sums
        find . -printf "%p %y %m %U %n %T@ %l\n" | sort >../home/list-now
        grep -v " d " ../home/list >../home/a
        grep -v " d " ../home/list-now | diff ../home/a -'
}

# Without allow_other the kernel lets nobody else in, not even the superuser; nor may others take it away.
unprivileged_closed() {
    local said
    if said=$(ls "$THEIRS/mnt" 2>&1); then return 1; fi
    [[ $said = *'Permission denied'* ]]
    if said=$(AS_UID=$STRANGER as_user ls mnt 2>&1); then return 1; fi
    [[ $said = *'Permission denied'* ]]
    if AS_UID=$STRANGER as_user fusermount3 -u mnt; then return 1; fi
    findmnt -n "$THEIRS/mnt"
}

# What he must not do on any file system he must not do on his own.
unprivileged_rights() {
    as_user touch mnt/mine
    if as_user chown "$STRANGER" mnt/mine; then return 1; fi
    if as_user mknod mnt/null c 1 3; then return 1; fi
    if as_user setfattr -n trusted.a -v b mnt/mine; then return 1; fi
    # A set-user-id program: the kernel does not heed the bit here.
    as_user cp "$(command -v id)" mnt/id
    as_user chmod 4755 mnt/id
    [[ $(as_user mnt/id -u) = "$UNPRIVILEGED" ]]
    as_user rm mnt/mine mnt/id
}

unprivileged_refused() {
    local said
    if said=$(as_user timeout 10 "$THEIRS/cofs" mount "$THEIR_STORE" mnt -o allow_other 2>&1); then return 1; fi
    echo "$said"
    [[ $said = *user_allow_other* && $said = */etc/fuse.conf* ]]
    [[ -z $(findmnt -n "$THEIRS/mnt") ]]
}

# With allow_other the files' own permissions decide.
unprivileged_open() {
    ls "$THEIRS/mnt" >/dev/null
    cmp "$THEIRS/mnt/large" "$THEIRS/home/random"
    AS_UID=$STRANGER as_user ls mnt >/dev/null
    AS_UID=$STRANGER as_user cat mnt/0/1 >/dev/null || AS_UID=$STRANGER as_user cat mnt/0/2 >/dev/null
    if AS_UID=$STRANGER as_user cat mnt/large; then return 1; fi
    if AS_UID=$STRANGER as_user touch mnt/new; then return 1; fi
    as_user mkdir -m 1777 mnt/shared
    AS_UID=$STRANGER as_user sh -c 'echo theirs >mnt/shared/of-a-stranger'
    [[ $(stat -c %u "$THEIRS/mnt/shared/of-a-stranger") = "$STRANGER" ]]
    echo root >"$THEIRS/mnt/shared/of-root"
    [[ $(as_user stat -c %u mnt/shared/of-root) = 0 ]]
    if as_user sh -c 'echo x >>mnt/shared/of-root'; then return 1; fi
    if AS_UID=$STRANGER as_user rm -f mnt/shared/of-root; then return 1; fi
    AS_UID=$STRANGER as_user rm mnt/shared/of-a-stranger
}

# fuse_conf LINE: for the time being /etc/fuse.conf holds this and nothing else.
fuse_conf() {
    fuse_conf_as_before
    echo "$1" >"$WORK/fuse.conf"
    mount --bind "$WORK/fuse.conf" /etc/fuse.conf
    MOUNTS+=(/etc/fuse.conf)
}

fuse_conf_as_before() {
    [[ " ${MOUNTS[*]} " = *' /etc/fuse.conf '* ]] || return 0
    umount /etc/fuse.conf
    forget MOUNTS /etc/fuse.conf
}
