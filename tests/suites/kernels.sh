# shellcheck shell=bash
# Older kernels, and others: a volume on each that Debian has for user-mode Linux (5.10, 6.1, 6.12), in a machine of its own, an ordinary
# process. The kernel of this machine's own release must boot; another's, whose package cannot be fetched, is skipped.

# In the short form the oldest has what a volume is worked on with (`posix`, fsx), and all are mounted, killed, supervised.

# shellcheck source=../kernels.sh
. tests/kernels.sh

suite_kernels() {
    local release lacks few=0 rounds own
    # Their disks lie straight in the working directory, not on a loop device.
    local BELOW=$WORK
    # The machines have kernels of their own: what is configured here makes no difference there.
    [[ $CONFIG = "${CONFIGS[0]}" ]] || return 0
    lacks=$(machine_lacks)
    if [[ -n $lacks ]]; then
        fail "$CONFIG/kernels" "$lacks"
        return 0
    fi
    if ((LONG)); then few=2; fi
    own=$(. /etc/os-release && echo "${VERSION_CODENAME:-}")
    local -x COFS_TEST_POSIX COFS_TEST_CRASH COFS_TEST_FSX COFS_TEST_PROGRAMS
    COFS_TEST_POSIX=$(test_binary posix)
    COFS_TEST_CRASH=$(test_binary crash)
    COFS_TEST_FSX=$TOOLS/fsx-0.3.2/bin/fsx
    COFS_TEST_PROGRAMS=$(kernels_programs)
    crash_test kernels-own boots::a_volume_on_another_kernel "$few" 1600 kernels
    for release in "${KERNEL_RELEASES[@]}"; do
        [[ $release != "$own" ]] || continue
        if kernel_had "$release"; then
            # The oldest differs most from what this machine has.
            if ((!LONG)) && [[ $release = "${KERNEL_RELEASES[0]}" ]]; then rounds=1; else rounds=$few; fi
            COFS_TEST_KERNEL=$KERNEL crash_test "kernels-$release" boots::a_volume_on_another_kernel "$rounds" 1600 kernels
        else
            skip "$CONFIG/kernels-$release" "its kernel cannot be fetched; $LOGS/kernel-$release.log"
        fi
    done
}

# The tests of the program and of its FUSE face that work on mounts of their own.
kernels_programs() {
    jq -r 'select(.reason == "compiler-artifact" and .profile.test and (.target.kind | index("test")) and .executable != null)
        | select((.package_id | test("/cofs(-fuse|-placement)?#")) and (.target.name | IN("alone", "mount", "read_only", "restart", "supervise", "impatient", "interrupts", "mounts", "notices", "operations", "waiting")))
        | .executable' "$CARGO_TARGET_DIR/cofs-tests.json" | sort -u | tr '\n' ' '
}
