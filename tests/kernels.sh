# shellcheck shell=bash
# Kernels of other Debian releases, as machines of their own (user-mode Linux): fetched once, into the cache. This machine's own packages, and
# what apt knows here, stay as they are.

# Releases whose package user-mode-linux is tried.
KERNEL_RELEASES=(bullseye bookworm trixie)

# kernel_had RELEASE: whether that release's kernel is there, or could be fetched; in $KERNEL then. A log tells why not.
kernel_had() {
    KERNEL=$COFS_CACHE/kernels/$1
    [[ -x $KERNEL/boot ]] || kernel_fetch "$1" >"$LOGS/kernel-$1.log" 2>&1
}

# Appears whole, or not at all. (In a condition bash ignores `set -e`.)
kernel_fetch() {
    local release=$1 into=$COFS_CACHE/kernels/$1.new
    command -v apt-get || return 1
    rm -rf "$into" && mkdir -p "$into" || return 1
    kernel_package "$into" "$release" user-mode-linux || return 1
    # It may have been built for a newer C library than is here.
    if "$into/usr/bin/linux.uml" --version; then
        ln -s usr/bin/linux.uml "$into/boot" || return 1
    else
        kernel_package "$into" "$release" libc6 && kernel_with_its_libc "$into" && "$into/boot" --version || return 1
    fi
    rm -rf "$KERNEL" && mv "$into" "$KERNEL"
}

# kernel_package DIR RELEASE PACKAGE: unpacks it there. apt has lists and a cache of its own for this, and the mirror from what this machine uses.
kernel_package() {
    local into=$1 release=$2 package=$3 apt=$1/apt mirror options
    # shellcheck disable=SC2016 # for apt
    mirror=$(apt-get indextargets --format '$(REPO_URI)' 'Created-By: Packages' 'Origin: Debian' 'Label: Debian' | head -n 1)
    [[ -n $mirror ]] || return 1
    mkdir -p "$apt"/{lists,archives}/partial
    echo "deb [signed-by=/usr/share/keyrings/debian-archive-keyring.gpg] $mirror $release main" >"$apt/sources.list"
    options=(-q -o "Dir::Etc::sourcelist=$apt/sources.list" -o Dir::Etc::sourceparts=/dev/null -o "Dir::State::lists=$apt/lists"
        -o "Dir::Cache=$apt" -o APT::Sandbox::User= -o Acquire::Languages=none -o Acquire::Retries=2
        -o Acquire::IndexTargets::deb::DEP-11::DefaultEnabled=false -o Acquire::IndexTargets::deb::Contents-deb::DefaultEnabled=false)
    apt-get "${options[@]}" update &&
        (cd "$apt/archives" && apt-get "${options[@]}" download "$package/$release") &&
        dpkg-deb -x "$apt/archives/$package"_*.deb "$into" && rm -rf "$apt"
}

# kernel_with_its_libc DIR: `boot` runs the kernel there with the C library that lies beside it. The kernel must be the program that is executed (its
# memory is where that lies), not an argument of the library's loader. So a copy asks for the loader by a name that is looked for where it runs.
kernel_with_its_libc() {
    local libraries=$1/usr/lib/x86_64-linux-gnu
    sed 's,/lib64/ld-linux-x86-64\.so\.2,ld-linux-x86-64.so.2\x00\x00\x00\x00\x00\x00\x00,' "$1/usr/bin/linux.uml" >"$libraries/linux.uml"
    chmod 755 "$libraries/linux.uml"
    cat >"$1/boot" <<'END'
#!/bin/sh
cd "${0%/*}/usr/lib/x86_64-linux-gnu" && LD_LIBRARY_PATH=. exec ./linux.uml "$@"
END
    chmod 755 "$1/boot"
}
