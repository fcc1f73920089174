# shellcheck shell=bash
# Our own POSIX cases (crates/cofs-testkit/tests/posix), and what stays over a remount.

# posix_cases [ARGUMENT...]: the cases, or those that the test program's arguments leave.
posix_cases() {
    local name=$CONFIG/posix log=$LOGS/${CONFIG//:/_}_posix.log from=$EPOCHREALTIME status=0 good bad case binary
    binary=$(test_binary posix)
    [[ -n $binary ]] || { fail "$name" "cargo gave no test binary posix"; return 0; }
    COFS_TEST_DIR=$MNT timeout --kill-after=10 600 "$binary" --test-threads 4 "$@" >"$log" 2>&1 </dev/null || status=$?
    read -r good bad < <(awk '/^test result:/ { p += $4; f += $6 } END { print p + 0, f + 0 }' "$log")
    while read -r case; do fail "$name/$case" "$log"; done < <(sed -n 's/^test \(.*\) \.\.\. FAILED$/\1/p' "$log")
    ((good == 0)) || pass "$name" "$good" "$good cases, $(seconds_since "$from") s"
    if ((status != 0)); then
        ((bad > 0)) || fail "$name" "exit status $status; $log"
        { grep -A6 -E '^---- .* stdout ----$' "$log" || tail -n 20 "$log"; } | grep -v '^note: run with' | head -n 150 | sed 's/^/      | /'
    elif grep -q '^SKIPPED' "$log"; then
        skip "$name" "$(grep -m1 '^SKIPPED' "$log")"
    fi
}

suite_posix() {
    local binary
    posix_cases
    binary=$(test_binary posix)
    [[ -n $binary ]] || return 0
    run_case "$CONFIG/posix/random-work" posix_work
    mkdir -p "$WORK/state"
    run_case "$CONFIG/posix/before-remount" posix_half "$binary" before
    remount || return 0
    run_case "$CONFIG/posix/after-remount" posix_half "$binary" after
}

posix_half() {
    COFS_TEST_DIR=$MNT COFS_TEST_STATE=$WORK/state timeout 120 "$1" --exact "remount::$2" --ignored | tee "$WORK/half"
    grep -q '^test result: ok. 1 passed' "$WORK/half"
}

# The crash tests' work and model, without a crash.
posix_work() {
    COFS_TEST_DIR=$MNT timeout 300 "$(test_binary crash)" --exact rounds::the_model_is_right_about_the_work --nocapture | tee "$WORK/work"
    grep -q '^test result: ok. 1 passed' "$WORK/work"
}
