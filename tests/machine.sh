# shellcheck shell=bash
# What suites need that boot a machine of their own (user-mode Linux): crates/cofs-testkit/src/machine/.

# machine_lacks PACKAGE...: what keeps a machine from booting here, of these packages too; nothing if it can.
machine_lacks() {
    local packages=(user-mode-linux kmod "$@")
    if [[ $(uname -m) != x86_64 ]]; then
        echo "user-mode Linux is for x86"
    elif ! (cofs_packages "${packages[@]}") >"$LOGS/packages.log" 2>&1; then
        echo "these packages cannot be had: ${packages[*]}; $LOGS/packages.log"
    elif ! command -v linux.uml >/dev/null; then
        echo "no linux.uml (Debian: user-mode-linux)"
    elif ! command -v cc >/dev/null; then
        echo "no C compiler"
    fi
}
