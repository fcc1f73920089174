# shellcheck shell=bash
# go-fuse's posixtest, each of its cases counted; its ledger is tests/ledger/posixtest.toml.

POSIXTEST_CASES=29

suite_posixtest() {
    local name=$CONFIG/posixtest log=$LOGS/${CONFIG//:/_}_posixtest.log from=$EPOCHREALTIME good case
    if [[ ! -x $WORK/posixtest ]]; then
        (cd tests/posixtest && go test -c -o "$WORK/posixtest" .) || { fail "$name" "does not compile"; return 0; }
    fi
    # The exit status says no more than the lines do: a case that never ended is missing among them.
    (cd "$WORK" && COFS_TEST_DIR=$MNT timeout --kill-after=10 300 ./posixtest -test.v) >"$log" 2>&1 </dev/null || true
    sed -n 's|^    --- FAIL: TestPosix/\([A-Za-z0-9]*\).*|\1|p' "$log" | sort >"$WORK/posixtest-failed"
    sed -n 's/^\([A-Za-z0-9]*\) = ".*/\1/p' tests/ledger/posixtest.toml | sort >"$WORK/posixtest-expected"
    while read -r case; do fail "$name/$case" "see $log"; done < <(comm -23 "$WORK/posixtest-failed" "$WORK/posixtest-expected")
    while read -r case; do fail "$name/$case" "stands in the ledger and passed"; done < <(comm -13 "$WORK/posixtest-failed" "$WORK/posixtest-expected")
    good=$(grep -c '^    --- PASS:' "$log" || true)
    good=$((good + $(comm -12 "$WORK/posixtest-failed" "$WORK/posixtest-expected" | wc -l)))
    ((good == 0)) || pass "$name" "$good" "$good cases, $(seconds_since "$from") s"
    while read -r case; do skip "$name" "$case"; done < <(grep '^    --- SKIP:' "$log")
    if (($(grep -Ec '^    --- (PASS|FAIL|SKIP):' "$log" || true) < POSIXTEST_CASES)); then
        fail "$name" "not every case came to its end; $log"
        tail -n 20 "$log" | sed 's/^/      | /'
    fi
}
