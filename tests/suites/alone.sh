# shellcheck shell=bash
# A mount that only root may enter: the kernel leaves the checks of permissions to cofs there, ACLs among them. The same suites, but for
# the cases that act as other users, whom the kernel does not let in.

# shellcheck source=posix.sh
. tests/suites/posix.sh
# shellcheck source=posixtest.sh
. tests/suites/posixtest.sh
# shellcheck source=fsx.sh
. tests/suites/fsx.sh

ALONE_SKIPS=(users:: set_id:: xattrs::attributes_are_protected_by_their_name_space)

suite_alone() {
    [[ $KIND != native ]] || { skip "$CONFIG/alone" "it is about the mount"; return 0; }
    local ALONE=1 skips=() case
    remount || return 0
    run_case "$CONFIG/alone/left-to-cofs" alone_left_to_cofs
    # shellcheck disable=SC2178 # shadows it for those that are called
    local CONFIG=$CONFIG:alone
    for case in "${ALONE_SKIPS[@]}"; do skips+=(--skip "$case"); done
    posix_cases "${skips[@]}"
    suite_posixtest
    mkdir -p "$MNT/fsx"
    fsx_profiles
    run_case_within 300 "$CONFIG/fsx" "$TOOLS/fsx-0.3.2/bin/fsx" -q -f "$WORK/fsx-boundary.toml" -N 4000 -S 21 -P "$LOGS" "$MNT/fsx/alone"
    ALONE=
    remount || true
}

alone_left_to_cofs() { ! findmnt -n -o OPTIONS "$MNT" | grep -w -e default_permissions -e allow_other; }
