#!/usr/bin/env bash
# The same tests with bigger numbers: more kills, more sandboxes, more simulated hours. Not part of CI.
#   PARHELIA_SOAK_KILLS=500 ./scripts/soak.sh
set -euo pipefail
cd "$(dirname "$0")/.."
export PARHELIA_SOAK_KILLS="${PARHELIA_SOAK_KILLS:-500}"
export PARHELIA_SOAK_DATABASE_KILLS="${PARHELIA_SOAK_DATABASE_KILLS:-100}"
export PARHELIA_SOAK_FAILOVERS="${PARHELIA_SOAK_FAILOVERS:-200}"
export PARHELIA_SOAK_SANDBOXES="${PARHELIA_SOAK_SANDBOXES:-200}"
export PROPTEST_CASES="${PROPTEST_CASES:-20000}"
cargo build --locked --workspace
cargo test --locked --workspace --no-fail-fast
cargo run --locked --release -p parhelia-sim -- --seeds "${PARHELIA_SOAK_SEEDS:-2000}" --hours "${PARHELIA_SOAK_HOURS:-24}"
