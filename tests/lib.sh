# shellcheck shell=bash
# What the suites of ./test share: counting, running a case, loop images, mounts, and clean-up.
#
# Invariants: whatever was mounted, attached or started is noted when it is made, by its exact id, and
# undone by `clean_up`, which runs at every exit. A case is counted once: passed, failed or skipped, and
# a skip says why. Nothing here looks at a name that was not made here.

CONFIGS_SHORT=(ext4:passthrough:dev ext4:daemon:uring xfs:passthrough:uring xfs:daemon:dev)
CONFIGS_ALL=({ext4,xfs}:{passthrough,daemon}:{dev,uring})
CONFIGS_NATIVE=(native:ext4 native:xfs)
declare -a CONFIGS=()

PASSED=0 FAILED=0 SKIPPED=0
declare -a FAILURES=() SKIPS=()

choose_configs() {
    local config
    if [[ -n $ON ]]; then
        IFS=, read -ra CONFIGS <<<"$ON"
    elif ((LONG)); then
        CONFIGS=("${CONFIGS_ALL[@]}")
    else
        CONFIGS=("${CONFIGS_SHORT[@]}")
    fi
    for config in "${CONFIGS[@]}"; do
        [[ " ${CONFIGS_ALL[*]} ${CONFIGS_NATIVE[*]} " = *" $config "* ]] ||
            { echo "./test: there is no configuration $config; see ./test --list" >&2; exit 2; }
    done
}

# ---- counting -------------------------------------------------------------------------------------

pass() { PASSED=$((PASSED + ${2:-1})); printf 'ok    %s%s\n' "$1" "${3:+  ($3)}"; }
fail() { FAILED=$((FAILED + 1)); FAILURES+=("$1"); printf 'FAIL  %s%s\n' "$1" "${2:+  ($2)}"; }
skip() { SKIPPED=$((SKIPPED + 1)); SKIPS+=("$1: $2"); printf 'SKIP  %s  (%s)\n' "$1" "$2"; }

# run_case NAME COMMAND...: one case; its output goes to a log, whose end is shown if it fails.
# CASE_SECONDS_MAX bounds it; only then is the command run by `timeout` (functions are not).
run_case() {
    local name=$1 log from status=0
    shift
    log=$LOGS/${name//[\/: ]/_}.log
    from=$EPOCHREALTIME
    set +e # the subshell must not be part of a condition, or bash would ignore its `set -e`
    (set -e; "$@") >"$log" 2>&1 </dev/null
    status=$?
    set -e
    local took
    took=$(seconds_since "$from")
    if ((status == 0)); then
        pass "$name" 1 "$took s"
        return 0
    fi
    fail "$name" "exit status $status after $took s; $log"
    tail -n "${CASE_LOG_LINES:-40}" "$log" | sed 's/^/      | /'
    return 0
}

# run_case_within SECONDS NAME COMMAND...: as run_case, ended after so many seconds.
run_case_within() {
    local limit=$1 name=$2
    shift 2
    run_case "$name" timeout --kill-after=10 "$limit" "$@"
}

seconds_since() { awk -v a="$1" -v b="$EPOCHREALTIME" 'BEGIN { printf "%.1f", b - a }'; }

start() {
    STARTED=$EPOCHREALTIME
    WORK=$(mktemp -d "${TMPDIR:-/tmp}/cofs-test.XXXXXX")
    LOGS=$ROOT/target/test-logs
    rm -rf "$LOGS"
    mkdir -p "$LOGS"
    trap 'clean_up' EXIT
    trap 'exit 130' INT
    trap 'exit 143' TERM HUP
}

finish() {
    echo
    printf '%s\n' "${SKIPS[@]/#/skipped: }" "${FAILURES[@]/#/failed:  }" | grep . || true
    echo "logs: $LOGS; $(seconds_since "$STARTED") s; $SKIPPED skipped"
    clean_up
    trap - EXIT
    echo "$PASSED passed, $FAILED failed"
    ((FAILED == 0)) || exit 1
    exit 0
}

# ---- machine --------------------------------------------------------------------------------------

TEST_PACKAGES=(acl attr e2fsprogs fio fuse3 git jq make rsync sqlite3 strace stress-ng tar util-linux xfsprogs libacl1-dev pkg-config)

prepare_machine() {
    # shellcheck source=../scripts/setup.sh
    . scripts/setup.sh
    cofs_setup
    export CARGO_TERM_COLOR=never
    if wanted fmt || wanted clippy; then
        if ! cargo fmt --version >/dev/null 2>&1 || ! cargo clippy --version >/dev/null 2>&1; then
            rustup component add rustfmt clippy >&2 || cofs_die "rustfmt and clippy are missing: rustup component add rustfmt clippy"
        fi
    fi
    if wanted unit; then cofs_packages strace; fi
    wanted_any "${SUITES_MOUNT[@]}" "${SUITES_CRASH[@]}" || return 0
    cofs_packages "${TEST_PACKAGES[@]}"
    if wanted_any posixtest alone && ! command -v go >/dev/null; then cofs_packages golang-go; fi
    TOOLS=$COFS_CACHE/tools
    wanted pjdfstest && install_tool pjdfstest 0.2.2
    if wanted_any fsx alone kernels; then install_tool fsx 0.3.2; fi
    return 0
}

# install_tool CRATE VERSION: compiled once for a machine, into the cache.
install_tool() {
    local root=$TOOLS/$1-$2
    [[ -x $root/bin/$1 ]] && return 0
    cofs_say "installing $1 $2 into $root"
    cargo install --quiet --locked --root "$root" --target-dir "$COFS_CACHE/tools/build" "$1@$2" >&2 ||
        cofs_die "$1 $2 could not be installed"
    rm -rf "$COFS_CACHE/tools/build"
}

shell_syntax() {
    local file
    for file in test .ci/run quickstart scripts/compare-clusters scripts/*.sh scripts/clusters/*.sh tests/*.sh tests/suites/*.sh; do
        if [[ -f $file ]]; then bash -n "$file"; fi
    done
}

# ---- cargo ----------------------------------------------------------------------------------------

build_everything() {
    cargo build --release --workspace --locked
    cargo test --release --workspace --locked --no-run
    cargo test --release --workspace --locked --no-run --message-format=json 2>/dev/null >"$CARGO_TARGET_DIR/cofs-tests.json"
    # Who measures asks for it (--features bench).
    if grep -oE '"name":"(engine_bench|placement_bench|verbs|harness_cost)"' "$CARGO_TARGET_DIR/cofs-tests.json"; then
        echo "benches are built with the tests"
        return 1
    fi
}

# test_binary NAME: the executable of the integration test NAME of cofs-testkit.
test_binary() {
    jq -r --arg name "$1" 'select(.reason == "compiler-artifact" and .profile.test and .target.name == $name and (.package_id | contains("cofs-testkit"))
        and (.target.kind | index("test")) and .executable != null) | .executable' "$CARGO_TARGET_DIR/cofs-tests.json" | head -n 1
}

# cargo test, counted by test, not by crate.
# The short form draws the same random cases for the same code, so that its verdict can be had again; the
# long form draws new ones, and says from which seed.
choose_seed() {
    if ((LONG)); then
        export PROPTEST_RNG_SEED=${PROPTEST_RNG_SEED:-$((RANDOM * 32768 + RANDOM))}
        echo "random cases from PROPTEST_RNG_SEED=$PROPTEST_RNG_SEED"
    else
        export PROPTEST_RNG_SEED=${PROPTEST_RNG_SEED:-1}
    fi
}

run_unit_tests() {
    local log=$LOGS/unit.log from=$EPOCHREALTIME status=0 good bad ignored
    local -x PROPTEST_RNG_SEED=${PROPTEST_RNG_SEED:-}
    choose_seed
    fuse_for_everybody
    uring_for_tests
    cargo test --release --workspace --locked --no-fail-fast >"$log" 2>&1 </dev/null || status=$?
    fuse_as_before
    read -r good bad ignored < <(awk '/^test result:/ { p += $4; f += $6; i += $8 } END { print p + 0, f + 0, i + 0 }' "$log")
    if ((status == 0 && bad == 0)); then
        pass unit "$good" "$good tests, $ignored ignored, $(seconds_since "$from") s"
        return 0
    fi
    PASSED=$((PASSED + good))
    FAILED=$((FAILED + (bad > 0 ? bad - 1 : 0)))
    fail unit "$good passed, $bad failed, exit status $status; $log"
    grep -E '^(test .* FAILED|error|failures:)' "$log" | sort -u | head -n 40 | sed 's/^/      | /'
    grep -A12 -E '^---- .* stdout ----$' "$log" | head -n 120 | sed 's/^/      | /'
}

# ---- clean-up -------------------------------------------------------------------------------------

declare -a MOUNTS=() LOOPS=() DAEMONS=()
URING_WAS='' FUSE_WAS=''
URING_SWITCH=/sys/module/fuse/parameters/enable_uring

# The kernel lets new mounts have io_uring, until the end of this run.
uring_for_tests() {
    [[ $EUID = 0 && -e $URING_SWITCH ]] || return 0
    URING_WAS=${URING_WAS:-$(cat "$URING_SWITCH")}
    echo Y >"$URING_SWITCH" || true # whoever needs it says what he has not got
}

# /dev/fuse as Debian's own rules have it, for as long as other users' mounts are tested.
fuse_for_everybody() {
    [[ $EUID = 0 && -c /dev/fuse && -z $FUSE_WAS ]] || return 0
    FUSE_WAS=$(stat -c %a /dev/fuse)
    chmod 666 /dev/fuse
}

fuse_as_before() {
    [[ -z $FUSE_WAS ]] || chmod "$FUSE_WAS" /dev/fuse
    FUSE_WAS=''
}

clean_up() {
    local i item
    set +e
    cd "$ROOT" || return
    for item in "${DAEMONS[@]}"; do kill -TERM "$item" 2>/dev/null; done
    for ((i = ${#MOUNTS[@]} - 1; i >= 0; i--)); do
        mountpoint -q "${MOUNTS[i]}" || [[ -n $(findmnt -n "${MOUNTS[i]}") ]] || continue
        umount "${MOUNTS[i]}" 2>/dev/null || umount -l "${MOUNTS[i]}"
    done
    for item in "${DAEMONS[@]}"; do wait_gone "$item" 50 || kill -KILL "$item" 2>/dev/null; done
    for item in "${LOOPS[@]}"; do losetup -d "$item" 2>/dev/null; done
    [[ -n $URING_WAS ]] && echo "$URING_WAS" >"$URING_SWITCH"
    fuse_as_before
    MOUNTS=() LOOPS=() DAEMONS=() URING_WAS=
    [[ -n ${WORK:-} ]] && rm -rf --one-file-system "$WORK"
    set -e
}

# wait_gone PID TENTHS: whether the process has ended within so many tenths of a second. Its first thread may have, and others still hold what it had open.
wait_gone() {
    local n threads
    for ((n = 0; n < $2; n++)); do
        [[ -d /proc/$1 ]] || return 0
        threads=("/proc/$1/task"/*)
        [[ $(cut -d ' ' -f 3 "/proc/$1/stat" 2>/dev/null) = Z && ${#threads[@]} = 1 ]] && return 0
        sleep 0.1
    done
    return 1
}

# serves DAEMON MNT [AS...]: waits until there is a mount on MNT that answers us, or whom AS... makes us; fails after half a
# minute, or when the process has ended.
serves() {
    local daemon=$1 mnt=$2 n
    shift 2
    for ((n = 0; n < 300; n++)); do
        if findmnt -n "$mnt" >/dev/null && "$@" stat "$mnt" >/dev/null 2>&1; then return 0; fi
        [[ -d /proc/$daemon ]] || break
        sleep 0.1
    done
    return 1
}
