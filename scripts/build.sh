#!/usr/bin/env bash
# The end-to-end tests start the built binary, so it is built first; and before it the one that an upgrade replaces it
# by, which differs in its version and its protocol on disk.
set -euo pipefail
cd "$(dirname "$0")/.."
binaries="${CARGO_TARGET_DIR:-target}/debug"
cargo build --locked -p parhelia --features next
cp "$binaries/parhelia" "$binaries/parhelia-next"
cargo build --locked --workspace
