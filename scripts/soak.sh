#!/usr/bin/env bash
# The same tests with bigger numbers: more kills, more upgrades, longer fuzzing, more simulated hours. Not part of CI.
#   PARHELIA_SOAK_KILLS=500 ./scripts/soak.sh
set -euo pipefail
cd "$(dirname "$0")/.."
export PARHELIA_SOAK_KILLS="${PARHELIA_SOAK_KILLS:-500}"
export PARHELIA_SOAK_DATABASE_KILLS="${PARHELIA_SOAK_DATABASE_KILLS:-100}"
export PARHELIA_SOAK_FAILOVERS="${PARHELIA_SOAK_FAILOVERS:-200}"
export PARHELIA_SOAK_SESSION_KILLS="${PARHELIA_SOAK_SESSION_KILLS:-200}"
export PARHELIA_SOAK_UPGRADES="${PARHELIA_SOAK_UPGRADES:-50}"
export PARHELIA_SOAK_EXAMPLES="${PARHELIA_SOAK_EXAMPLES:-200}"
export PARHELIA_FUZZ_SECONDS="${PARHELIA_FUZZ_SECONDS:-120}"
export PROPTEST_CASES="${PROPTEST_CASES:-20000}"
scripts/packages.sh
scripts/build.sh
cargo test --locked --workspace --exclude parhelia-sim --no-fail-fast
cargo test --locked --profile quick -p parhelia-sim --no-fail-fast
# A million simulated hours, in worlds that the tests do not see and in the build that runs quickest. A world with sessions
# takes ten times as long as one without, so here one in 200 has them; in the tests it is one in eight.
cargo run --locked --profile dist -p parhelia-sim -- --from "${PARHELIA_SOAK_FROM:-1000000}" \
    --seeds "${PARHELIA_SOAK_SEEDS:-42000}" --hours "${PARHELIA_SOAK_HOURS:-24}" \
    --sessions-in "${PARHELIA_SOAK_SESSIONS_IN:-200}"
