# shellcheck shell=bash
# pjdfstest: the POSIX conformance suite, as root; its ledger is tests/ledger/pjdfstest.toml.

PJDFSTEST_CASES_MIN=390 # of 398, of which a file system without a limit on links skips one

suite_pjdfstest() {
    local second=$WORK/second-fs log=$LOGS/${CONFIG//:/_}_pjdfstest.log
    mkdir -p "$second"
    mount -t tmpfs -o size=64m cofs-test "$second"
    MOUNTS+=("$second")
    pjdfstest_judged "$log" pjdfstest_both "$second"
    umount "$second"
    forget MOUNTS "$second"
}

pjdfstest_both() {
    local program=("$TOOLS/pjdfstest-0.2.2/bin/pjdfstest" --secondary-fs "$1" --path "$MNT") status=0
    sed 's/^allow_remount = false/allow_remount = true/' tests/ledger/pjdfstest.toml >"$WORK/pjdfstest-remount.toml"
    timeout --kill-after=10 900 "${program[@]}" --configuration-file tests/ledger/pjdfstest.toml || status=1
    # It remounts by mount(8), which for a FUSE type would look for a helper that is installed: -i asks for none.
    mkdir -p "$WORK/bin"
    printf '#!/bin/sh\nexec %s -i "$@"\n' "$(command -v mount)" >"$WORK/bin/mount"
    chmod +x "$WORK/bin/mount"
    PATH=$WORK/bin:$PATH timeout --kill-after=10 300 "${program[@]}" \
        --configuration-file "$WORK/pjdfstest-remount.toml" erofs || status=1
    rm -r "${WORK:?}/bin"
    return "$status"
}

# pjdfstest_judged LOG COMMAND...: runs it and counts its cases, not its processes.
pjdfstest_judged() {
    local name=$CONFIG/pjdfstest log=$1 from=$EPOCHREALTIME status=0 good bad
    shift
    "$@" >"$log" 2>&1 </dev/null || status=$?
    good=$(grep -Ec '[[:space:]]ok$|failed as expected$' "$log" || true)
    bad=$(grep -Ec 'FAILED$|PASSED UNEXPECTEDLY$' "$log" || true)
    if ((status == 0 && bad == 0 && good >= PJDFSTEST_CASES_MIN)); then
        pass "$name" "$good" "$good cases, $(seconds_since "$from") s"
        return 0
    fi
    PASSED=$((PASSED + good)) FAILED=$((FAILED + (bad > 0 ? bad - 1 : 0)))
    fail "$name" "$good passed, $bad failed, exit status $status; $log"
    grep -E -A1 'FAILED$|PASSED UNEXPECTEDLY$' "$log" | cut -c 1-200 | head -n 60 | sed 's/^/      | /'
}
