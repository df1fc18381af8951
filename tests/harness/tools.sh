# shellcheck shell=bash
# Pinned tools of other projects, installed from PyPI and npm into a folder outside of the repository
# and used again by the next run. Source this file; every function prints a path on standard output
# and its progress on standard error.
#
# RAGLAN_TESTS_CACHE names the folder (default: ~/.cache/raglan-tests). Deleting it is safe.

tests_cache="${RAGLAN_TESTS_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/raglan-tests}"

# What npm may choose indirect dependencies from: everything published before this day.
npm_packages_before="2026-11-30"
node_version="22.23.3"

# install_once FOLDER COMMAND...: runs COMMAND unless it has succeeded for this folder before.
# A half-made folder is thrown away. Two runs at the same time wait for each other.
install_once() {
    local folder="$1"
    shift
    mkdir -p "$tests_cache" || return 1
    (
        flock 9 || exit 1
        [ -e "$folder/.complete" ] && exit 0
        echo "installing $(basename "$folder") into $tests_cache" >&2
        rm -rf "$folder"
        mkdir -p "$folder" && "$@" >&2 && touch "$folder/.complete"
    ) 9>"$folder.lock"
}

# python_environment NAME PIP-ARGUMENT...: an environment with these packages; prints its interpreter.
python_environment() {
    local folder="$tests_cache/python-$1"
    shift
    install_once "$folder" make_python_environment "$folder" "$@" || return 1
    echo "$folder/bin/python"
}

make_python_environment() {
    local folder="$1"
    shift
    python3 -m venv "$folder" &&
        "$folder/bin/python" -m pip install --quiet --disable-pip-version-check "$@"
}

# node_packages PACKAGE@VERSION...: a folder with these packages; prints it.
node_packages() {
    local name="$*"
    name="${name//@modelcontextprotocol\//mcp-}"
    local folder="$tests_cache/npm-${name//[^a-z0-9.-]/-}"
    install_once "$folder" npm install --prefix "$folder" --before="$npm_packages_before" \
        --no-audit --no-fund --loglevel=error "$@" || return 1
    echo "$folder"
}

# node_22: prints the path of a Node.js 22, which the conformance suite and the Inspector need.
node_22() {
    local folder node
    folder="$(node_packages "node@$node_version")" || return 1
    node="$folder/node_modules/node/bin/node"
    if ! "$node" --version >/dev/null; then
        echo "node@$node_version did not install itself; does npm run install scripts?" >&2
        return 1
    fi
    echo "$node"
}
