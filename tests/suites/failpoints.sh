# shellcheck shell=bash
# The daemon ends at every failpoint of docs/design/orders.md, one after the other; each must be reached.

suite_failpoints() {
    # One way of mounting is enough for the short form: the places are those of the operations.
    if ((!LONG)) && [[ $CONFIG != "${CONFIGS[0]}" ]]; then return 0; fi
    crash_test failpoints sweep::the_daemon_may_end_at_every_arrow_of_the_table 1 1200
}
