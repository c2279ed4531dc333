#!/usr/bin/env bash
# Everything that must hold, in one command: installs what the tests need, then format, lints, all tests and
# the documentation. Needs Rust and Debian; whatever cannot run makes it fail, nothing is skipped.
set -euo pipefail
cd "$(dirname "$0")/.."

say() { printf '\n== %s\n' "$*"; }

say "packages"
scripts/packages.sh

say "format"
cargo fmt --all --check

say "lints"
cargo clippy --locked --workspace --all-targets -- -D warnings

say "build"
scripts/build.sh

say "tests"
cargo test --locked --workspace --exclude parhelia-sim --no-fail-fast

# Optimized, as it simulates thousands of hours.
say "simulation"
PARHELIA_SIM_HOURS="${PARHELIA_SIM_HOURS:-10000}" \
    cargo test --locked --profile quick -p parhelia-sim --no-fail-fast -- --show-output

say "documentation"
RUSTDOCFLAGS="-D warnings" cargo doc --locked --workspace --no-deps --quiet

say "all of it passed"
