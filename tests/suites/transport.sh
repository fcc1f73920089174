# shellcheck shell=bash
# Where the kernel lets nobody have FUSE over io_uring, /dev/fuse serves whoever asks for it or for nothing, and `status` and the log say why.
# The kernel's switch is everybody's, so that this is no test beside others.

suite_transport() {
    [[ $KIND != native && $TRANSPORT = uring ]] || return 0
    local store=$BELOW/transport
    TRANSPORTED=$WORK/transport
    rm -f "$WORK/transport.log"
    mkdir -p "$TRANSPORTED"
    "$COFS" format "$store" >>"$LOGS/daemon.log" 2>&1
    run_case "$CONFIG/transport/switched-off" transport_switched_off "$store"
    rm -rf --one-file-system "$store" "$TRANSPORTED"
}

transport_switched_off() {
    local store=$1 options reason='the kernel'\''s fuse.enable_uring is off'
    trap 'echo Y >"$URING_SWITCH"; "$COFS" umount "$TRANSPORTED" 2>/dev/null || true' EXIT
    for options in transport=uring transport=auto; do
        echo N >"$URING_SWITCH"
        "$COFS" mount -d "$store" "$TRANSPORTED" -o "$options" 2>>"$WORK/transport.log"
        echo Y >"$URING_SWITCH"
        "$COFS" status "$TRANSPORTED" --output json | jq .mount
        "$COFS" status "$TRANSPORTED" --output json | jq -e --arg why "$reason" \
            '.mount | .transport == "dev" and (.transport_reason | startswith($why)) and .stacking == false'
        echo served >"$TRANSPORTED/$options"
        [[ $(<"$TRANSPORTED/$options") = served ]]
        "$COFS" umount "$TRANSPORTED"
    done
    # Who asked for it by name is told.
    cat "$WORK/transport.log"
    (($(grep -c 'io_uring cannot be had: /dev/fuse serves' "$WORK/transport.log") == 1))
    "$COFS" mount -d "$store" "$TRANSPORTED"
    "$COFS" status "$TRANSPORTED" --output json |
        jq -e '.mount | .transport == "uring" and .transport_reason == "the kernel offers it"'
    "$COFS" umount "$TRANSPORTED"
    "$COFS" fsck "$store"
}
