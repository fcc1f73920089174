# shellcheck shell=bash
# systemd runs cofs: the unit that is shipped and lines of fstab, in a machine of their own (user-mode Linux, an ordinary
# process) whose first process is systemd.

suite_systemd() {
    local lacks
    # The machine has a kernel of its own: what is configured here makes no difference there.
    [[ $CONFIG = "${CONFIGS[0]}" ]] || return 0
    lacks=$(machine_lacks systemd)
    if [[ -n $lacks ]]; then
        fail "$CONFIG/systemd" "$lacks"
        return 0
    fi
    crash_test systemd boots::volumes_under_systemd 1 2000 systemd
}
