# shellcheck shell=bash
# cofs over cluster file systems: scripts/compare-clusters refuses what makes no sense before it starts anything; in the long form it
# compares all of them with few files (every run must go through, and fsck find nothing), and leaves nothing behind when it is ended.

suite_clusters() {
    local lacks
    # It makes images and mounts of its own: what is configured here makes no difference there.
    [[ $CONFIG = "${CONFIGS[0]}" ]] || return 0
    run_case "$CONFIG/clusters/refusals" clusters_refuse
    if ((!LONG)); then
        skip "$CONFIG/clusters/compare" "only in the long form"
        return 0
    fi
    lacks=$(clusters_lack)
    if [[ -n $lacks ]]; then
        skip "$CONFIG/clusters/compare" "$lacks"
        return 0
    fi
    # shellcheck disable=SC2153 # COFS and WORK are ./test's
    run_case_within 900 "$CONFIG/clusters/compare" bash -euo pipefail -c "$(declare -f clusters_compare clusters_left); clusters_compare '$COFS' '$WORK'"
    run_case_within 120 "$CONFIG/clusters/ended" bash -euo pipefail -c "$(declare -f clusters_ended clusters_left); clusters_ended '$COFS' '$WORK'"
}

# What keeps cluster file systems from being had here; nothing if they can.
clusters_lack() {
    local name packages=() CLUSTER_PACKAGES
    for name in gluster moosefs ceph; do
        # shellcheck source=scripts/clusters/gluster.sh
        . "scripts/clusters/$name.sh"
        packages+=("${CLUSTER_PACKAGES[@]}")
    done
    if ! (cofs_packages "${packages[@]}") >"$LOGS/packages.log" 2>&1; then
        echo "these packages cannot be had: ${packages[*]}; $LOGS/packages.log"
    fi
}

# Each of these is one line, ends with 2, and makes nothing.
clusters_refuse() {
    local words status said
    mkdir -p "$WORK/full"
    touch "$WORK/full/something"
    while read -ra words; do
        status=0
        said=$(scripts/compare-clusters --cofs "$COFS" --out "$WORK/refused" "${words[@]}" 2>&1) || status=$?
        echo "${words[*]}: $status: $said"
        [[ $status = 2 && $(wc -l <<<"$said") = 1 && $said = "compare-clusters: "* && ! -e $WORK/refused ]]
    done <<EOF
--on lustre
--on gluster,,ceph
--on run
--processes 0
--processes 1,x
--processes 1,65
--mounts 17
--mounts
--cofs-mounts 1,2
--cofs-mounts x
--cofs-mounts 2
--repeats 0
--files 63
--files -5
--sweep 1;2
--data 64
--data 4M
--out $WORK/full
--out $WORK/nowhere/out
--unknown
EOF
}

clusters_compare() {
    local cofs=$1 work=$2 name
    TMPDIR=$work scripts/compare-clusters --cofs "$cofs" --processes 1,4 --mounts 1,2 --files 64 --sweep 0 --repeats 1 --data 16M --out "$work/clusters"
    for name in GlusterFS MooseFS CephFS; do grep -q "<h2>$name" "$work/clusters/report.html"; done
    grep -q 'Helps: ' "$work/clusters/report.html"
    clusters_left "$work"
}

# Ended while it measures.
clusters_ended() {
    local cofs=$1 work=$2 script n
    TMPDIR=$work scripts/compare-clusters --cofs "$cofs" --on gluster --out "$work/ended" &
    script=$!
    for ((n = 0; n < 600; n++)); do
        if compgen -G "$work/ended/*.json" >/dev/null; then break; fi
        sleep 0.1
    done
    compgen -G "$work/ended/*.json" >/dev/null
    kill -TERM "$script"
    ! wait "$script"
    clusters_left "$work"
}

# Nothing of a comparison is left in this directory, nor on a loop device.
clusters_left() {
    ! compgen -G "$1/cofs-clusters.*"
    ! losetup --list --noheadings --output BACK-FILE | grep -F "$1/cofs-clusters."
}
