# Commands for people who work on raglan; `just` lists them. Each is also a plain command: see .ci/run.

# Lists the commands.
default:
    @just --list

# Runs the whole system on this machine.
dev *options:
    cargo run -- dev {{ options }}

# Formats the code.
format:
    cargo fmt --all

# Looks for what the lints forbid.
lint:
    cargo fmt --all --check
    cargo clippy --workspace --all-targets -- -D warnings

# Runs the tests.
test:
    cargo test --workspace

# Sends audit events (default: 100,000) through failing services; none may be lost or doubled.
audit-faults *events:
    tests/faults/run {{ events }}

# Runs real MCP clients against the whole system (--quick, --write, --transcript).
clients *options:
    tests/clients/run {{ options }}

# Runs the official conformance suite.
conformance *revisions:
    tests/conformance/run {{ revisions }}

# Runs both functions under `cargo lambda watch`.
watch:
    tests/watch/run

# Checks the templates: cfn-lint, SAM, rights, the runbook, checkov.
infra:
    infra/check

# Deploys template.yaml into MiniStack, uses, updates and deletes it.
deployment:
    tests/deployment/run

# Runs stdio hosts against `raglan stdio`.
stdio:
    tests/stdio/run

# Runs a real OpenID provider and a client that finds it.
oauth:
    tests/oauth/run

# Runs the TypeScript client in a page in headless Chromium.
browser:
    tests/browser/run

# Runs the requests of public bug reports against a bootstrap (default: the ordinary build).
field *bootstrap:
    tests/field/run {{ bootstrap }}

# Checks the backend contract with OpenAI's own client and on OGX.
engines:
    tests/engines/run
    tests/engines/bedrock

# Measures the MCP function beside other Lambda functions, in release mode (--quick, --only, --json).
performance *options:
    tests/performance/run {{ options }}

# Counts the instructions of a fixed set of requests and compares them with the record (--record).
instructions *options:
    tests/performance/gate {{ options }}

# Measures how the cost of a call grows (--quick).
growth *options:
    tests/performance/growth {{ options }}

# Puts a load on the local system and on a server with the Python SDK (--seconds, --soak, --json).
load *options:
    tests/performance/load {{ options }}

# Measures the embedded index on manual pages (--embeddings: also by meaning).
quality *options:
    tests/quality/run {{ options }}

# Makes the tables and charts of docs/performance.md from the figures beside it.
performance-report:
    cargo run --bin performance-report

# Checks licences, advisories and sources of the dependencies; needs `cargo install cargo-deny`.
deny:
    cargo deny check

# Everything that a change has to pass.
ci:
    bash .ci/run
