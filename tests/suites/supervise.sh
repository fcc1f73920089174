# shellcheck shell=bash
# Volumes in the foreground, where the volume is mounted anew when the process that serves it dies, for root and for an ordinary user: that, and every end.
# Then volumes under `-o supervise`: a build goes on while the process that serves is killed ten times, for root and for an ordinary user;
# over io_uring, where requests do not survive, the volume is mounted anew each time. (Open files of every kind, requests whose answer
# was lost, giving up, ends in order and at every arrow of the way to another mount: crates/cofs/tests/supervise.rs and restart.rs.)

# shellcheck source=unprivileged.sh
. tests/suites/unprivileged.sh

SUPERVISE_KILLS=10

# The short form has root on ext4 and the user on XFS.
suite_supervise() {
    [[ $KIND != native ]] || return 0
    if ((LONG)) || [[ $KIND = ext4 ]]; then supervise_root "$CONFIG/supervise"; fi
    if ((LONG)) || [[ $KIND = xfs ]]; then supervise_user "$CONFIG/supervise/user"; fi
}

supervise_root() {
    local store=$BELOW/supervised
    SUPERVISED=$WORK/supervised
    mkdir -p "$SUPERVISED"
    "$COFS" format "$store" >>"$LOGS/daemon.log" 2>&1
    supervise_foreground "$1/foreground" "$SUPERVISED" "$COFS" mount "$store" "$SUPERVISED" -o "$(mount_options)"
    if supervised_up "$1/mount" "$SUPERVISED" "$COFS" mount "$store" "$SUPERVISED" -o "supervise,$(mount_options)"; then
        if [[ $TRANSPORT = uring ]]; then
            run_case "$1/anew" supervised_anew
        else
            run_case "$1/build" supervised_build "$SUPERVISED"
            run_case "$1/names" supervised_names "$SUPERVISED"
        fi
        run_case "$1/umount" supervised_umount "$SUPERVISED" "$COFS"
        run_case "$1/fsck" "$COFS" fsck "$store"
    fi
    rm -rf --one-file-system "$store"
}

supervise_user() {
    local lacks
    lacks=$(unprivileged_lacks)
    if [[ -n $lacks ]]; then
        skip "$1" "$lacks"
        return 0
    fi
    THEIRS=$WORK/user THEIR_STORE=$BELOW/user-store
    rm -rf --one-file-system "$THEIRS" "$THEIR_STORE"
    mkdir -p "$THEIRS"/{mnt,home} "$THEIR_STORE"
    install -m 755 "$COFS" "$THEIRS/cofs"
    chown -R "$UNPRIVILEGED:$UNPRIVILEGED" "$THEIRS" "$THEIR_STORE"
    fuse_for_everybody
    as_user "$THEIRS/cofs" format "$THEIR_STORE" >>"$LOGS/daemon.log" 2>&1
    # setpriv and env become cofs: the process started is the supervisor.
    local started=(setpriv --reuid="$UNPRIVILEGED" --regid="$UNPRIVILEGED" --clear-groups
        env -i PATH="$PATH" "$THEIRS/cofs" mount "$THEIR_STORE" "$THEIRS/mnt")
    AS=as_user supervise_foreground "$1/foreground" "$THEIRS/mnt" "${started[@]}" -o "transport=$TRANSPORT"
    if supervised_up "$1/foreground/replacing/mount" "$THEIRS/mnt" "${started[@]}" -o "transport=$TRANSPORT"; then
        AS=as_user run_case "$1/foreground/replacing" foreground_replacing
    fi
    run_case "$1/foreground/fsck" as_user "$THEIRS/cofs" fsck "$THEIR_STORE"
    if [[ $TRANSPORT != uring ]] && supervised_up "$1/mount" "$THEIRS/mnt" "${started[@]}" -o "supervise,transport=$TRANSPORT"; then
        run_case "$1/names" supervised_names "$THEIRS/mnt" as_user
        run_case "$1/umount" supervised_umount "$THEIRS/mnt" as_user "$THEIRS/cofs"
        run_case "$1/fsck" as_user "$THEIRS/cofs" fsck "$THEIR_STORE"
    fi
    fuse_as_before
    rm -rf --one-file-system "$THEIRS" "$THEIR_STORE"
}

# How the process that was started ends in each case, as it would without a supervisor.
declare -A FOREGROUND_ENDS=([crash]=0 [sigterm]=0 [killed]=137 [hangup]=129)

# supervise_foreground NAME DIR COMMAND...: mounts in the foreground that COMMAND makes, each for another end. AS: who works there, where that is not root.
supervise_foreground() {
    local name=$1 dir=$2 end status
    shift 2
    for end in crash sigterm killed hangup; do
        supervised_up "$name/$end/mount" "$dir" "$@" || return 0
        run_case "$name/$end" "foreground_$end" "$dir"
        wait_gone "$WATCHES" 100 || kill -KILL "$WATCHES"
        status=0
        wait "$WATCHES" 2>/dev/null || status=$?
        run_case "$name/$end/status" foreground_status "$status" "${FOREGROUND_ENDS[$end]}"
        forget DAEMONS "$WATCHES"
        forget MOUNTS "$dir"
    done
    MOUNTS+=("$dir")
    run_case "$name/interrupt" foreground_interrupt "$dir" "$@"
    forget MOUNTS "$dir"
}

foreground_status() {
    echo "it ended with $1; expected: $2"
    (($1 == $2))
}

foreground_crash() {
    mounted_anew "$1"
    umount "$1"
}

foreground_sigterm() { foreground_ends TERM "$1"; }

# Neither an unserved mount stays, nor a process that nobody knows of.
foreground_killed() { foreground_ends KILL "$1"; }

# Its terminal goes.
foreground_hangup() { foreground_ends HUP "$1"; }

# foreground_ends SIGNAL DIR: to the process that was started; the volume is unmounted, in order.
foreground_ends() {
    local serves
    read -r serves _ <<<"$(serves_now)"
    foreground_write "$1" "$2/$1"
    kill -s "$1" "$WATCHES"
    wait_gone "$WATCHES" 100
    wait_gone "$serves" 100
    [[ -z $(findmnt -n "$2") ]]
}

# foreground_write TEXT FILE
# shellcheck disable=SC2016 # for another shell
foreground_write() { ${AS:-} sh -c 'echo "$1" >"$2"' write "$1" "$2"; }

# A user's dead mount is taken away before the next is made. Who ends between the two leaves the directory as it is, in which somebody may put something
# before the next begins: the volume is mounted all the same, and that is hidden.
foreground_replacing() {
    local n
    foreground_write replacing "$THEIRS/mnt/replacing"
    cp "$THEIRS/cofs" "$THEIRS/program"
    printf '#!/bin/sh\nif mkdir "%s/first"; then export COFS_FAILPOINT=cofs.replace.taken_away; else touch "%s/mnt/between"; fi\nexec "%s/program" "$@"\n' \
        "$THEIRS" "$THEIRS" "$THEIRS" >"$THEIRS/script"
    chmod 755 "$THEIRS/script"
    mv "$THEIRS/script" "$THEIRS/cofs"
    sleep 0.3
    # shellcheck disable=SC2046 # it is one
    kill -KILL $(serves_now)
    for ((n = 0; n < 200; n++)); do
        if [[ -d $THEIRS/first && $(as_user cat mnt/replacing 2>/dev/null) = replacing ]]; then break; fi
        sleep 0.05
    done
    mv "$THEIRS/program" "$THEIRS/cofs"
    [[ $(as_user ls mnt) != *between* && $(as_user cat mnt/replacing) = replacing && $(findmnt -n "$THEIRS/mnt" | wc -l) = 1 ]]
    as_user rm mnt/replacing
    as_user "$THEIRS/cofs" umount mnt
    wait_gone "$WATCHES" 100
    [[ -z $(findmnt -n "$THEIRS/mnt") && -e $THEIRS/mnt/between ]]
    rm "$THEIRS/mnt/between"
}

# From a terminal, which tells everybody in its foreground: nothing is said, and it ends well.
foreground_interrupt() {
    local dir=$1 terminal status=0 said
    shift
    rm -f "$WORK/keys"
    mkfifo "$WORK/keys"
    script -qefc "exec $(printf '%q ' "$@")" "$WORK/terminal" <"$WORK/keys" >/dev/null &
    terminal=$!
    exec 7>"$WORK/keys"
    # shellcheck disable=SC2086 # several words, or none
    serves "$terminal" "$dir" ${AS:-}
    # What was written before each of the other ends.
    # shellcheck disable=SC2016,SC2086 # for another shell; several words, or none
    ${AS:-} sh -euc 'cd "$1"; [ "$(cat *)" = "$(printf "HUP\nKILL\nTERM\n1\n2\n3")" ]; rm *' all "$dir"
    sleep 0.3
    printf '\003' >&7
    wait_gone "$terminal" 100 || kill -KILL "$terminal"
    wait "$terminal" || status=$?
    exec 7>&-
    # Without the lines of script(1).
    said=$(sed '1d; $d' "$WORK/terminal" | tr -d '\r\n')
    echo "status $status; on the terminal: $said"
    [[ $status = 0 && $said = '^C' && -z $(findmnt -n "$dir") ]]
}

# supervised_up NAME DIR COMMAND...: that it serves is a case; the process started is the supervisor, $WATCHES.
supervised_up() {
    local name=$1 dir=$2 n
    shift 2
    "$@" >>"$LOGS/daemon.log" 2>&1 </dev/null &
    WATCHES=$!
    DAEMONS+=("$WATCHES")
    MOUNTS+=("$dir")
    for ((n = 0; n < 300; n++)); do
        if findmnt -n "$dir" >/dev/null && [[ -n $(serves_now) ]]; then
            pass "$name"
            return 0
        fi
        sleep 0.1
    done
    fail "$name" "does not serve; $LOGS/daemon.log"
    return 1
}

# The process that serves: the supervisor's only child.
serves_now() { cat "/proc/$WATCHES/task/$WATCHES/children"; }

# kill_often DIR [AS...]: ends it ten times; how often that was done goes to $WORK/kills. Lives of less than a tenth of a second, one after the
# other, count towards giving up: each is killed when it has served for longer.
kill_often() {
    local n child
    for ((n = 1; n <= SUPERVISE_KILLS; n++)); do
        "${@:2}" stat -f "$1" >/dev/null
        sleep 0.5
        read -r child _ <<<"$(serves_now)"
        kill -KILL "$child"
        echo "$n" >"$WORK/kills"
        while [[ $(serves_now) = "$child "* || -z $(serves_now) ]]; do
            [[ -d /proc/$WATCHES ]] || { echo "the supervisor has ended" >&2; return 1; }
            sleep 0.05
        done
    done
}

# supervised_build DIR: the library lz4 by its own makefiles again and again as long as there is somebody to kill; the last build is what it is elsewhere.
supervised_build() {
    local source killer rounds=0
    source=$(find "${CARGO_HOME:-$HOME/.cargo}/registry/src" -maxdepth 3 -path '*/lz4-sys-*/liblz4' | head -n 1)
    [[ -n $source ]] || { echo "no sources of lz4 in cargo's registry" >&2; return 1; }
    rm -rf "$WORK/lz4" && cp -r "$source" "$WORK/lz4"
    make -s -C "$WORK/lz4" -j2 CFLAGS=-O0 lib
    echo 0 >"$WORK/kills"
    kill_often "$1" &
    killer=$!
    cp -r "$source" "$1/lz4"
    while ((rounds == 0)) || kill -0 "$killer" 2>/dev/null; do
        make -s -C "$1/lz4" clean
        make -s -C "$1/lz4" -j2 CFLAGS=-O0 lib
        rounds=$((rounds + 1))
    done
    wait "$killer"
    echo "$rounds builds, $(cat "$WORK/kills") kills"
    (($(cat "$WORK/kills") == SUPERVISE_KILLS))
    cmp "$WORK/lz4/lib/liblz4.a" "$1/lz4/lib/liblz4.a"
    make -s -C "$WORK/lz4" clean
    make -s -C "$1/lz4" clean
    diff -r "$source" "$1/lz4"
    rm -rf "$1/lz4" "$WORK/lz4"
}

# supervised_names DIR [AS...]: four processes that change names, each of which knows what must come of it; every answer must be that of a
# file system which has never died.
supervised_names() {
    local dir=$1 worker workers=() killer
    shift
    echo 0 >"$WORK/kills"
    kill_often "$dir" "$@" &
    killer=$!
    for worker in 1 2 3 4; do
        "$@" bash -euc "$NAMES_CHANGE" names "$dir/$worker" &
        workers+=($!)
    done
    wait "$killer"
    "$@" touch "$dir/stop"
    for worker in "${workers[@]}"; do wait "$worker"; done
    (($(cat "$WORK/kills") == SUPERVISE_KILLS))
    # shellcheck disable=SC2016 # for another shell, which may look there
    "$@" bash -euc 'cd "$1"; cat [1-4]/rounds; rm -r [1-4] stop; [[ -z $(ls -A) ]]' count "$dir"
}

# mkdir, rmdir, link, rename, unlink, symlink, O_EXCL (noclobber), append.
# shellcheck disable=SC2016 # for another shell
NAMES_CHANGE='
    mkdir "$1"; cd "$1"; set -o noclobber
    for ((n = 0; ; n++)); do
        mkdir "d$n"; echo "$n" >"d$n/a"; ln "d$n/a" "d$n/b"; mv "d$n/a" "d$n/c"; ln -s c "d$n/s"
        [[ $(cat "d$n/s") = "$n" && $(ls "d$n") = $'\''b\nc\ns'\'' ]]
        echo "$n" >>all; mv "d$n/b" "d$n/c" 2>/dev/null || rm "d$n/b"; rm -f "d$n/b"; rm "d$n/c" "d$n/s"; rmdir "d$n"
        if [[ -e ../stop ]]; then break; fi
    done
    cmp all <(seq 0 "$n"); [[ $(ls) = all ]]; echo "$n rounds" >rounds'

# What is in hand over io_uring is lost with the process, and what is open.
supervised_anew() {
    mounted_anew "$SUPERVISED"
    [[ $("$COFS" status "$SUPERVISED" --output json | jq -r '.mount | "\(.survives) \(.transport)"') = 'false uring' ]]
}

# mounted_anew DIR: kills the process that serves, thrice; what was written is there again, and no dead mount stays.
# shellcheck disable=SC2086 # AS: several words, or none
mounted_anew() {
    local n child tries
    for n in 1 2 3; do
        foreground_write "$n" "$1/file-$n"
        sleep 0.7
        read -r child _ <<<"$(serves_now)"
        kill -KILL "$child"
        wait_gone "$child" 100
        for ((tries = 0; tries < 200; tries++)); do
            if [[ $(${AS:-} cat "$1/file-$n" 2>/dev/null) = "$n" ]]; then break; fi
            sleep 0.05
        done
        [[ $(${AS:-} cat "$1/file-$n") = "$n" && $(findmnt -n "$1" | wc -l) = 1 && $(serves_now) != "$child "* ]]
    done
}

# supervised_umount DIR COFS...: nothing of it stays.
supervised_umount() {
    local serves
    read -r serves _ <<<"$(serves_now)"
    "${@:2}" umount "$1"
    wait_gone "$serves" 100
    wait_gone "$WATCHES" 100
    [[ -z $(findmnt -n "$1") ]]
}
