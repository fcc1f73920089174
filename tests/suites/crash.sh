# shellcheck shell=bash
# kill -9 of the daemon at random times under load: what was acknowledged is there afterwards, and fsck agrees; the same of SIGTERM and of a lazy
# unmount, after which nothing else is left either.

suite_crash() {
    local rounds=8 limit=400
    if ((LONG)); then rounds=100 limit=3000; fi
    crash_test crash rounds::what_was_acknowledged_survives_kill_nine "$rounds" "$limit"
    crash_test ends ends::what_was_acknowledged_survives_an_end_at_work 1 300
}

# crash_test SUITE CASE ROUNDS SECONDS_MAX [BINARY]: one case of the test binary `crash` (or another), on a volume of its own.
crash_test() {
    local dir=$BELOW/$1 log=$LOGS/${CONFIG//:/_}_$1.log from=$EPOCHREALTIME status=0 names name
    mkdir -p "$dir"
    COFS_TEST_BINARY=$COFS COFS_TEST_CRASH_DIR=$dir COFS_TEST_ROUNDS=$3 COFS_TEST_SEED=${COFS_TEST_SEED:-$RANDOM} \
        COFS_TEST_MOUNT_OPTIONS=$(mount_options) timeout --kill-after=10 "$4" \
        "$(test_binary "${5:-crash}")" --exact "$2" --nocapture >"$log" 2>&1 </dev/null || status=$?
    crash_clean_up "$dir"
    grep -E '^(seed|Score)' "$log" | sed 's/^/      /' || true
    names=$(grep -c '^ok ' "$log" || true)
    if ((status == 0)) && grep -q '^test result: ok. 1 passed' "$log"; then
        pass "$CONFIG/$1" $((names > 0 ? names : 1)) "$3 rounds or $names places, $(seconds_since "$from") s"
        return 0
    fi
    PASSED=$((PASSED + names))
    while read -r name; do fail "$CONFIG/$1/$name" "$log"; done < <(sed -n 's/^FAILED //p' "$log")
    fail "$CONFIG/$1" "exit status $status; $log"
    grep -E -A3 'panicked at' "$log" | grep -v '^note' | head -n 60 | cut -c 1-400 | sed 's/^/      | /'
}

# Mounts that a failed case left behind; its daemons are its children and end with their mounts.
crash_clean_up() {
    local left
    findmnt -rn -o TARGET | grep "^$1/" | while read -r left; do umount -l "$left"; done || true
    rm -rf --one-file-system "$1"
}
