# shellcheck shell=bash
# Random operations on the mount and on the model of a POSIX tree (crates/cofs-testkit): every answer is the same,
# and so are both trees at the end. A failing case is shrunk; PROPTEST_RNG_SEED draws the same ones again.

suite_model() {
    local seed cases=750 limit=600
    if ((LONG)); then cases=10000 limit=2400; fi
    if [[ $CONFIG = native:xfs ]]; then
        skip "$CONFIG/model" "XFS says EEXIST for ENOTEMPTY, as POSIX allows, and lists its own copies of ACLs"
    else
        for seed in $(model_seeds 1); do
            model_case "$CONFIG/model" model_directory "$seed" "$cases" "$limit" a_directory_behaves_like_the_model
        done
    fi
    [[ $CONFIG = "${CONFIGS[0]}" ]] || return 0
    # Those without a mount. The suite `unit` has the seed that is always the same behind it.
    if ((LONG)); then cases=2000; else cases=150; fi
    for seed in $(model_seeds 2); do
        [[ $seed != 1 ]] || continue
        model_case model_filesystem model_filesystem "$seed" "$cases" "$limit"
        model_case model_namespace model_namespace "$seed" "$cases" "$limit"
    done
}

# model_seeds MORE: the seeds to draw cases from: the same ones each time in the short form, so that its verdict can be had again; in
# the long form so many new ones, so that more is tried than was once. PROPTEST_RNG_SEED, if it is set, is the only one.
model_seeds() {
    local n
    if [[ -n ${PROPTEST_RNG_SEED:-} ]]; then
        echo "$PROPTEST_RNG_SEED"
        return
    fi
    ((LONG)) || echo 1
    for ((n = 1; n <= $1; n++)); do
        if ((LONG)); then echo $((RANDOM * 32768 + RANDOM)); else echo $((n + 1)); fi
    done
}

# model_case NAME BINARY SEED CASES SECONDS_MAX [TEST]: one test binary, or one test of it.
model_case() {
    local name=$1 log=$LOGS/${1//[:\/]/_}_$3.log from=$EPOCHREALTIME status=0 binary passed
    binary=$(test_binary "$2")
    [[ -n $binary ]] || { fail "$name" "cargo gave no test binary $2"; return 0; }
    PROPTEST_RNG_SEED=$3 PROPTEST_CASES=$4 COFS_TEST_DIR=$MNT timeout --kill-after=10 "$5" \
        "$binary" ${6:+--exact "$6"} --nocapture >"$log" 2>&1 </dev/null || status=$?
    passed=$(sed -n 's/^test result: ok. \([0-9]*\) passed.*/\1/p' "$log")
    if ((status == 0 && ${passed:-0} > 0)); then
        pass "$name" "$passed" "seed $3, $4 cases, $(seconds_since "$from") s"
        return 0
    fi
    fail "$name" "exit status $status, PROPTEST_RNG_SEED=$3 PROPTEST_CASES=$4; $log"
    grep -v '^note: run with' "$log" | head -n 60 | cut -c 1-600 | sed 's/^/      | /'
}
