# shellcheck shell=bash
# The fuzzers of fuzz/, each over its seeds and then led by coverage from a seed that is always the same: some seconds each (long form:
# minutes, from new ones). They need neither nightly nor cargo-fuzz, which adds the sanitizer of addresses.

FUZZ_TARGETS=(request stored load acl)
# How many inputs the short form tries.
declare -A FUZZ_RUNS=([request]=2000000 [stored]=10000 [load]=10000 [acl]=2000000)
FUZZ_SECONDS_MAX=120   # short form: never reached, unless it hangs
FUZZ_SECONDS_LONG=180

# What cargo-fuzz has rustc do, without -Zsanitizer: counters that libFuzzer reads, and comparisons that it sees.
FUZZ_FLAGS=(--cfg fuzzing -Cpasses=sancov-module -Cllvm-args=-sanitizer-coverage-level=4 -Cllvm-args=-sanitizer-coverage-inline-8bit-counters
    -Cllvm-args=-sanitizer-coverage-pc-table -Cllvm-args=-sanitizer-coverage-trace-compares -Ccodegen-units=1 -Cdebug-assertions)

suite_fuzz() {
    local target
    run_case fuzz/build fuzz_build
    for target in "${FUZZ_TARGETS[@]}"; do
        run_case "fuzz/$target" fuzz_one "$target"
    done
}

# For a target that is named, so that the flags are not those of build scripts, too.
fuzz_build() {
    local flags
    flags=$(IFS=$'\037' && echo "${FUZZ_FLAGS[*]}")
    [[ ${#FUZZ_TARGETS[@]} = "$(find fuzz/fuzz_targets -name '*.rs' | wc -l)" ]]
    CARGO_ENCODED_RUSTFLAGS=$flags cargo build --release --locked --manifest-path fuzz/Cargo.toml --target "$(host_triple)" \
        --target-dir "$CARGO_TARGET_DIR/fuzz"
}

host_triple() { rustc -vV | sed -n 's/^host: //p'; }

fuzz_binaries() { echo "$CARGO_TARGET_DIR/fuzz/$(host_triple)/release"; }

fuzz_one() {
    local work=$WORK/fuzz-$1 bounds
    if ((LONG)); then
        bounds=(-seed="$((RANDOM * 32768 + RANDOM + 1))" -max_total_time="$FUZZ_SECONDS_LONG")
    else
        bounds=(-seed=1 -runs="${FUZZ_RUNS[$1]}" -max_total_time="$FUZZ_SECONDS_MAX")
    fi
    mkdir -p "$work/found" "$work/artifacts"
    if [[ -d fuzz/seeds/$1 ]]; then cp "fuzz/seeds/$1"/* "$work/found/"; fi
    "$(fuzz_binaries)/$1" "${bounds[@]}" -max_len=6000 -timeout=10 -artifact_prefix="$LOGS/fuzz-$1-" -print_final_stats=1 "$work/found"
}
