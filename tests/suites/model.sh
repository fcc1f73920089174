# shellcheck shell=bash
# Random operations on the mount and on the model of a POSIX tree (crates/cofs-testkit): every answer is the same,
# and so are both trees at the end. A failing case is shrunk; PROPTEST_RNG_SEED draws the same ones again.

suite_model() {
    local name=$CONFIG/model log=$LOGS/${CONFIG//:/_}_model.log from=$EPOCHREALTIME status=0 cases=1500 limit=600 binary
    local -x PROPTEST_RNG_SEED=${PROPTEST_RNG_SEED:-} # each configuration draws its own
    if ((LONG)); then cases=10000 limit=2400; fi
    binary=$(test_binary model_directory)
    if [[ $CONFIG = native:xfs ]]; then
        skip "$name" "XFS says EEXIST for ENOTEMPTY, as POSIX allows, and lists its own copies of ACLs"
        return 0
    fi
    [[ -n $binary ]] || { fail "$name" "cargo gave no test binary model_directory"; return 0; }
    choose_seed
    PROPTEST_CASES=$cases COFS_TEST_DIR=$MNT timeout --kill-after=10 "$limit" \
        "$binary" --exact a_directory_behaves_like_the_model --nocapture >"$log" 2>&1 </dev/null || status=$?
    if ((status == 0)) && grep -q '^test result: ok. 1 passed' "$log"; then
        pass "$name" 1 "$cases cases, $(seconds_since "$from") s"
        return 0
    fi
    fail "$name" "exit status $status, PROPTEST_RNG_SEED=$PROPTEST_RNG_SEED PROPTEST_CASES=$cases; $log"
    grep -v '^note: run with' "$log" | head -n 60 | cut -c 1-600 | sed 's/^/      | /'
}
