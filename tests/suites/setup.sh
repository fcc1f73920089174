# shellcheck shell=bash
# scripts/setup.sh on a machine that has no Rust: a directory of links to a few tools is all of it, and what would come from the network is
# played.

suite_setup() {
    run_case setup/installs-rust-by-curl setup_installs curl
    run_case setup/installs-rust-by-wget setup_installs wget
    run_case setup/says-what-to-do-without-either setup_tells ''
    run_case setup/says-what-to-do-without-a-network setup_tells 'exit 22'
    run_case setup/says-what-to-do-if-the-installer-fails setup_tells 'echo "exit 1"'
    run_case setup/leaves-a-rust-that-fits setup_leaves
    run_case setup/builds-anew-what-another-clone-built setup_clones
}

# setup_machine [FETCHER SCRIPT]: an empty home, a PATH with a few tools, and perhaps a program that fetches.
setup_machine() {
    local tool
    MACHINE=$WORK/machine
    rm -rf "$MACHINE"
    mkdir -p "$MACHINE/bin" "$MACHINE/home"
    for tool in bash cat chmod head id mkdir sh sort tail; do ln -s "$(command -v "$tool")" "$MACHINE/bin/"; done
    [[ $# = 0 ]] || setup_program "$MACHINE/bin/$1" "$2"
}

setup_program() {
    mkdir -p "$(dirname "$1")"
    printf '#!/bin/sh\n%s\n' "$2" >"$1"
    chmod +x "$1"
}

# What setup.sh says goes to $MACHINE/said.
setup_rust() {
    env -i HOME="$MACHINE/home" PATH="$MACHINE/bin" bash -euc '. scripts/setup.sh; cofs_rust; cargo --version' 2>"$MACHINE/said"
}

setup_installs() {
    local fetched
    # The installer, as the fetcher prints it.
    # shellcheck disable=SC2016
    fetched='echo "$*" >"$HOME/asked"
cat <<"END"
echo "$*" >"$HOME/told"
mkdir -p "$HOME/.cargo/bin"
printf "#!/bin/sh\necho cargo 1.95.0\n" >"$HOME/.cargo/bin/cargo"
chmod +x "$HOME/.cargo/bin/cargo"
END'
    setup_machine "$1" "$fetched"
    [[ $(setup_rust) = 'cargo 1.95.0' ]]
    cat "$MACHINE/said" "$MACHINE"/home/*
    grep -q 'fetching https://sh.rustup.rs, .*for this user only' "$MACHINE/said"
    grep -q 'https.* https://sh.rustup.rs$' "$MACHINE/home/asked"
    grep -q -- '-y --profile minimal' "$MACHINE/home/told"
    # Once is enough.
    [[ $(setup_rust) = 'cargo 1.95.0' && ! -s $MACHINE/said ]]
}

setup_tells() {
    if [[ -n $1 ]]; then setup_machine curl "$1"; else setup_machine; fi
    if setup_rust; then return 1; fi
    cat "$MACHINE/said"
    [[ $(tail -n 4 "$MACHINE/said" | head -n 1) = *': Rust '*' or newer is needed (found: none;'* ]]
    grep -q 'curl .* https://sh.rustup.rs | sh -s -- -y' "$MACHINE/said"
    [[ $(tail -n 1 "$MACHINE/said") = 'then run this again.' ]]
}

setup_leaves() {
    # shellcheck disable=SC2016
    setup_machine curl 'echo >"$HOME/asked"'
    setup_program "$MACHINE/home/.cargo/bin/cargo" 'echo cargo 1.88.0'
    [[ $(setup_rust) = 'cargo 1.88.0' && ! -e $MACHINE/home/asked ]]
    # One that is too old does not.
    setup_program "$MACHINE/home/.cargo/bin/cargo" 'echo cargo 1.63.0'
    if setup_rust; then return 1; fi
    grep -q 'found: cargo 1.63.0' "$MACHINE/said"
    [[ -e $MACHINE/home/asked ]]
}

# Two clones with one target directory; the second's files are as old as the first's, and differ.
setup_clones() {
    local at=$WORK/clones name
    rm -rf "$at"
    for name in first second; do
        mkdir -p "$at/$name/src"
        printf '[package]\nname = "cofs-of-a-clone"\nversion = "0.0.0"\nedition = "2024"\n[workspace]\n' >"$at/$name/Cargo.toml"
        printf 'fn main() { println!("%s of {}", env!("CARGO_MANIFEST_DIR")); }\n' "$name" >"$at/$name/src/main.rs"
        find "$at/$name" -exec touch -d '2020-01-01' {} +
    done
    for name in first first second first; do
        [[ $(setup_builds "$at" "$name") = "$name of $at/$name" ]]
    done
    # What is this clone's own stays.
    setup_builds "$at" first 2>&1 >/dev/null | tee "$at/said"
    ! grep -q Compiling "$at/said"
}

setup_builds() {
    (cd "$1/$2" && CARGO_TARGET_DIR=$1/target && . "$ROOT/scripts/setup.sh" && cofs_own_target && cargo run --target-dir "$CARGO_TARGET_DIR")
}
