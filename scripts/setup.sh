# shellcheck shell=bash
# What a build of cofs needs, shared by ./quickstart and ./test. To be sourced from bash, with the
# project's root as the working directory:
#
#     . scripts/setup.sh
#     cofs_setup                 # packages, Rust, RocksDB; exports what cargo needs
#     cofs_packages attr acl     # further Debian packages
#     cofs_cargo_dist build ...  # as users are to have it, and as it is measured
#
# RocksDB takes some ten minutes of two cores to compile, so it is compiled once for a machine: the
# static library is kept in a cache that outlives the clone, and every build links that one.
#
# Environment: COFS_CACHE (default ${XDG_CACHE_HOME:-$HOME/.cache}/cofs), CARGO_TARGET_DIR (default
# $COFS_CACHE/target), ROCKSDB_LIB_DIR (a library of your own; then nothing is compiled here).

# The oldest Rust that compiles the workspace (rust-version in Cargo.toml).
COFS_RUST_MIN=1.88

cofs_say() { printf '%s\n' "$*" >&2; }
cofs_die() { printf '%s: %s\n' "${0##*/}" "$*" >&2; exit 1; }

# Runs a command as root: as it is, or with sudo where that asks nothing; fails where neither works.
cofs_as_root() {
    if [ "$(id -u)" -eq 0 ]; then "$@"
    elif command -v sudo >/dev/null && { sudo -n true 2>/dev/null || [ -t 0 ]; }; then sudo "$@"
    else return 127
    fi
}

# cofs_packages PACKAGE...: installs those that are missing, or says which to install.
cofs_packages() {
    command -v dpkg-query >/dev/null || return 0 # not Debian: the checks that follow say what lacks
    local package missing=()
    for package in "$@"; do
        [ "$(dpkg-query -W -f '${db:Status-Status}' "$package" 2>/dev/null)" = installed ] || missing+=("$package")
    done
    [ "${#missing[@]}" -eq 0 ] && return 0
    cofs_say "installing: ${missing[*]}"
    local install=(cofs_as_root env DEBIAN_FRONTEND=noninteractive apt-get install -y -q --no-install-recommends)
    # The lists are fetched only if it does not go without.
    "${install[@]}" "${missing[@]}" >&2 && return 0
    cofs_as_root apt-get update -q >&2 || true
    "${install[@]}" "${missing[@]}" >&2 ||
        cofs_die "these packages are missing and could not be installed; as root: apt-get install ${missing[*]}"
}

# Whether the cargo that is found first is new enough.
cofs_rust_fits() {
    local version
    version=$(cargo --version 2>/dev/null) || return 1
    version=${version#cargo }
    version=${version%% *}
    [ "$(printf '%s\n' "$COFS_RUST_MIN" "$version" | sort -V | head -n 1)" = "$COFS_RUST_MIN" ]
}

cofs_rust() {
    cofs_rust_fits && return 0
    PATH="${CARGO_HOME:-$HOME/.cargo}/bin:$PATH"
    cofs_rust_fits && return 0
    # Debian 13 packages rustup; Debian's own compiler (1.63, 1.85) is too old for this project.
    if [ -n "$(apt-cache search --names-only '^rustup$' 2>/dev/null)" ]; then
        cofs_packages rustup
        rustup toolchain install stable --profile minimal >&2 && rustup default stable >&2
        cofs_rust_fits && return 0
    fi
    cofs_rustup && cofs_rust_fits && return 0
    cofs_die "Rust $COFS_RUST_MIN or newer is needed (found: $(cargo --version 2>/dev/null || echo none); Debian's own is too old).
Install it for this user with the official installer from https://rustup.rs:
    curl --proto '=https' --tlsv1.2 -sSf https://sh.rustup.rs | sh -s -- -y --profile minimal
then run this again."
}

# Installs Rust for this user by the official installer, where something can fetch that.
cofs_rustup() {
    local fetch installer
    command -v curl >/dev/null || command -v wget >/dev/null || (cofs_packages curl ca-certificates) || return 1
    if command -v curl >/dev/null; then fetch=(curl --proto '=https' --tlsv1.2 -sSf)
    elif command -v wget >/dev/null; then fetch=(wget --quiet --https-only --output-document=-)
    else return 1
    fi
    cofs_say "no Rust $COFS_RUST_MIN or newer (found: $(cargo --version 2>/dev/null || echo none)): fetching https://sh.rustup.rs, which installs it for this user only, into ${CARGO_HOME:-$HOME/.cargo} and ${RUSTUP_HOME:-$HOME/.rustup}"
    installer=$("${fetch[@]}" https://sh.rustup.rs) && [ -n "$installer" ] || return 1
    # Whole before it is run. The shell's start-up files are left alone: what needs Rust here finds it.
    printf '%s\n' "$installer" | sh -s -- -y --profile minimal --no-modify-path >&2
}

# The version of RocksDB that Cargo.lock asks for, such as 0.19.0-11.8.1.
cofs_rocksdb_version() {
    awk '/^name = "librocksdb-sys"$/ { getline; gsub(/version = |"/, ""); gsub(/[+]/, "-"); print; exit }' Cargo.lock
}

# Compiles RocksDB into $1 (a directory) unless it is there. One at a time; appears whole, or not at all.
cofs_rocksdb_build() {
    local into=$1 scratch lock
    mkdir -p "$COFS_CACHE"
    exec {lock}>"$COFS_CACHE/build.lock"
    flock "$lock"
    if [ ! -s "$into/librocksdb.a" ]; then
        scratch=$COFS_CACHE/rocksdb-build
        cofs_say "compiling RocksDB, once for this machine (some ten minutes of two cores); the library goes to $into"
        env -u ROCKSDB_LIB_DIR -u ROCKSDB_STATIC -u CARGO_TARGET_DIR \
            cargo build --release -p cofs-engine --lib --target-dir "$scratch" >&2 || cofs_die "RocksDB did not compile; see above"
        mkdir -p "$into"
        cp "$scratch"/release/build/librocksdb-sys-*/out/librocksdb.a "$into/librocksdb.a.new" ||
            cofs_die "no librocksdb.a under $scratch"
        mv "$into/librocksdb.a.new" "$into/librocksdb.a"
        rm -rf "$scratch"
    fi
    exec {lock}>&-
}

# The profile for optimised builds by this compiler (scripts/profile.sh makes it), whether or not it is there.
cofs_profile() {
    rustc -vV | awk -v dir="$PWD/scripts/profiles" '/^release: / { r = $2 } /^host: / { h = $2 } END { print dir "/rustc-" r "-" h ".profdata" }'
}

# cofs_cargo_with FLAG ARGUMENT...: cargo with one more flag for rustc, which may have spaces in it.
cofs_cargo_with() {
    local flags
    flags=$(printf '%s' "${RUSTFLAGS:-}" | tr -s ' ' '\037')
    flags=${CARGO_ENCODED_RUSTFLAGS:-$flags}
    CARGO_ENCODED_RUSTFLAGS=${flags:+$flags$'\037'}$1 cargo "${@:2}"
}

# cofs_cargo_dist ARGUMENT...: cargo for the profile dist, by the compiler's own profile where there is one. (To another compiler's it
# finds no names, and an older compiler cannot read it.)
cofs_cargo_dist() {
    local profile
    profile=$(cofs_profile)
    if [ -s "$profile" ]; then
        # Functions that have changed since it was made are compiled as without it: no need to tell of each.
        cofs_cargo_with "-Cprofile-use=$profile"$'\037'-Cllvm-args=-no-pgo-warn-mismatch "$1" --profile dist "${@:2}"
    else
        cargo "$1" --profile dist "${@:2}"
    fi
}

# Clones may share a target directory, and cargo tells their sources apart by age alone: what another clone has built would be taken for
# this one's, with its code and with the names of its files. So it is forgotten; what was compiled of other people's crates stays.
cofs_own_target() {
    local mark=$CARGO_TARGET_DIR/cofs-clone clone directory
    clone="$PWD $(stat -c %i .)"
    [ "$(cat "$mark" 2>/dev/null)" = "$clone" ] && return 0
    mkdir -p "$CARGO_TARGET_DIR"
    find "$CARGO_TARGET_DIR" -maxdepth 4 -type d -name .fingerprint | while IFS= read -r directory; do
        rm -rf "$directory"/cofs*
    done
    printf '%s\n' "$clone" >"$mark"
}

cofs_setup() {
    COFS_CACHE=${COFS_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/cofs}
    cofs_packages build-essential clang libclang-dev fuse3 ca-certificates
    cofs_rust
    local tool
    for tool in c++ clang fusermount3; do
        command -v "$tool" >/dev/null || cofs_die "$tool is missing: install a C++ compiler, clang with libclang, and fuse3"
    done
    if [ -z "${ROCKSDB_LIB_DIR:-}" ]; then
        ROCKSDB_LIB_DIR=$COFS_CACHE/rocksdb-$(cofs_rocksdb_version)-$(uname -m)
        [ -s "$ROCKSDB_LIB_DIR/librocksdb.a" ] || cofs_rocksdb_build "$ROCKSDB_LIB_DIR"
    fi
    export COFS_CACHE ROCKSDB_LIB_DIR ROCKSDB_STATIC=1 PATH
    export CARGO_TARGET_DIR=${CARGO_TARGET_DIR:-$COFS_CACHE/target}
    cofs_own_target
}
