# shellcheck shell=bash
# The power goes while a volume is worked on: a machine of its own (user-mode Linux, an ordinary process) is killed and its
# disk looked at from here. What was synced is there, and the rest is a prefix of what was done.

suite_powercut() {
    local rounds=3 limit=300 lacks
    # The machine has a kernel of its own: what is configured here makes no difference there.
    [[ $CONFIG = "${CONFIGS[0]}" ]] || return 0
    lacks=$(machine_lacks)
    if [[ -n $lacks ]]; then
        skip "$CONFIG/powercut" "$lacks"
        return 0
    fi
    if ((LONG)); then rounds=60 limit=2400; fi
    crash_test powercut rounds::what_was_synced_survives_a_power_cut_and_the_rest_is_a_prefix "$rounds" "$limit" powercut
}
