# shellcheck shell=bash
# The measured program. Source this file after harness/system.sh.

# find_bootstrap: sets `bootstrap` to the function as it is deployed: RAGLAN_BOOTSTRAP, or a release build.
find_bootstrap() {
    bootstrap="${RAGLAN_BOOTSTRAP:-}"
    if [ -z "$bootstrap" ]; then
        echo "building the function in release mode" >&2
        (cd "$project" && cargo build --release -p raglan-mcp-function >&2) || return 1
        bootstrap="${CARGO_TARGET_DIR:-$project/target}/release/mcp"
    fi
}

# start_emulators_in FOLDER: like start_emulators, with a state that stays.
start_emulators_in() {
    local log="$scratch/emulators.log"
    raglan_env_file="$scratch/raglan.env"
    mkdir -p "$1"
    "$programs/raglan" dev --emulators-only --state-dir "$1" --env-file "$raglan_env_file" >"$log" 2>&1 &
    started_processes+=($!)
    wait_until 120 "the emulators" grep -q "^Ctrl-C ends" "$log" || { cat "$log" >&2; return 1; }
}

# start_with_indexes PASSAGES...: starts the emulators on a state that stays in the tests' cache, with an index of so
# many passages in the knowledge base passages-PASSAGES each. Building them takes minutes, once.
start_with_indexes() {
    local state="$tests_cache/performance-growth" passages
    start_emulators_in "$state" || return 1
    for passages in "$@"; do
        [ ! -e "$state/indexed-$passages" ] || continue
        echo "building an index of $passages passages" >&2
        python3 "$here/corpus.py" "$scratch/corpus" "$passages" || return 1
        (
            set -a
            # shellcheck source=/dev/null
            . "$raglan_env_file"
            "$programs/raglan" index "$scratch/corpus" --kb "passages-$passages" >"$scratch/index.log" 2>&1
        ) || { tail -n 3 "$scratch/index.log" >&2; return 1; }
        rm -rf "$scratch/corpus"
        touch "$state/indexed-$passages"
    done
}
