# shellcheck shell=bash
# What starting, mounting and ending share.

# patiently SECONDS COMMAND...: until it succeeds.
patiently() {
    local end=$((SECONDS + $1)) said
    shift
    until said=$("$@" 2>&1); do
        ((SECONDS < end)) || { printf '%s: %s\n' "$*" "$said" >&2; return 1; }
        sleep 0.3
    done
}

# end_of PIDFILE...: ends the processes that are named there, in this order.
end_of() {
    local file pid
    for file in "$@"; do
        [[ -s $file ]] || continue
        pid=$(cat "$file")
        kill -TERM "$pid" 2>/dev/null || continue
        patiently 10 gone "$pid" 2>/dev/null || kill -KILL "$pid" 2>/dev/null || true
    done
}

gone() { [[ ! -d /proc/$1 ]]; }

is_mounted() { grep -q " $1 " /proc/self/mounts; }
