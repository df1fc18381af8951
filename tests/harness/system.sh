# shellcheck shell=bash
# The system under test: builds raglan, starts it on free loopback ports in a temporary folder and
# stops it. Source this file from a script that has set `project` to the repository's folder.

# Everything that a script writes. Removed, after what runs has been stopped, when the script ends.
scratch="$(mktemp -d "${TMPDIR:-/tmp}/raglan-test.XXXXXX")"
started_processes=()
# Processes that lead a process group of their own (setsid), to be stopped with all of it.
started_groups=()

end_of_test() {
    local status=$?
    local pid
    trap - EXIT INT TERM
    for pid in ${started_groups[@]+"${started_groups[@]}"}; do
        stop_process "$pid" "-$pid"
    done
    for pid in ${started_processes[@]+"${started_processes[@]}"}; do
        stop_process "$pid"
    done
    rm -rf "$scratch"
    exit "$status"
}
trap end_of_test EXIT
trap 'exit 130' INT
trap 'exit 143' TERM

# stop_process PID [-GROUP]: asks it, or its whole group, to end (raglan empties its queue first) and
# insists after ten seconds.
stop_process() {
    local pid="$1" target="${2:-$1}" _
    kill -INT -- "$target" 2>/dev/null || return 0
    for _ in $(seq 100); do
        kill -0 -- "$target" 2>/dev/null || break
        sleep 0.1
    done
    kill -KILL -- "$target" 2>/dev/null || true
    wait "$pid" 2>/dev/null || true
}

# wait_until SECONDS WHAT COMMAND...: waits until COMMAND succeeds.
wait_until() {
    local tries=$(($1 * 5)) what="$2" _
    shift 2
    for _ in $(seq "$tries"); do
        "$@" >/dev/null 2>&1 && return 0
        sleep 0.2
    done
    echo "gave up waiting for $what" >&2
    return 1
}

free_port() {
    python3 -c 'import socket; s = socket.socket(); s.bind(("127.0.0.1", 0)); print(s.getsockname()[1])'
}

# build_programs: builds the programs `raglan`, `mcp` and `audit` and sets `programs`, their folder.
# RAGLAN_PROGRAMS names a folder where they are already. The whole workspace is built, because a
# smaller selection would compile the dependencies again with other features.
build_programs() {
    if [ -n "${RAGLAN_PROGRAMS:-}" ]; then
        programs="$RAGLAN_PROGRAMS"
        return
    fi
    echo "building raglan" >&2
    (cd "$project" && cargo build --quiet --workspace --bins >&2) || return 1
    programs="${CARGO_TARGET_DIR:-$project/target}/debug"
}

# start_raglan: starts the whole system and sets `raglan_url`, `raglan_key` and `raglan_env_file`
# (the endpoints and names of the tables).
start_raglan() {
    local log="$scratch/raglan.log" state="$scratch/state"
    "$programs/raglan" dev --state-dir "$state" --port 0 >"$log" 2>&1 &
    started_processes+=($!)
    wait_until 60 "raglan dev" grep -q "^Audit trail" "$log" || { cat "$log" >&2; return 1; }
    raglan_url="$(sed -n 's/^MCP endpoint  *//p' "$log")"
    raglan_key="$(sed -n 's/^Key  *\(rgl_[A-Za-z0-9]*\).*/\1/p' "$log")"
    raglan_env_file="$state/running.env"
}

# start_emulators [OPTION...]: starts only the services, with `raglan dev --emulators-only`, and sets
# `raglan_env_file` (what the functions need, and RAGLAN_KEY).
start_emulators() {
    local log="$scratch/emulators.log"
    raglan_env_file="$scratch/raglan.env"
    "$programs/raglan" dev --emulators-only --state-dir "$scratch/state" \
        --env-file "$raglan_env_file" "$@" >"$log" 2>&1 &
    started_processes+=($!)
    wait_until 60 "the emulators" grep -q "^Ctrl-C ends" "$log" || { cat "$log" >&2; return 1; }
}
