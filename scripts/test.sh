#!/usr/bin/env bash
# Everything that must hold, in one command: installs what the tests need, then format, lints, all tests and
# the documentation. Needs Rust and Debian; whatever cannot run makes it fail, nothing is skipped.
set -euo pipefail
cd "$(dirname "$0")/.."

say() { printf '\n== %s\n' "$*"; }

# What the tests use besides Rust: a C compiler for SQLite, tmux and vim (people at a terminal), faketime for clocks
# that jump, mount for small disks, Docker
# (each of its tests starts a private engine of its own) and a static busybox for its image, openssl for a
# certificate, and Python for clients and checkers that we did not write (crates/cli/tests/e2e/requirements.txt).
say "packages"
missing=()
for pair in cc:gcc tmux:tmux vim:vim faketime:faketime mount:mount ps:procps dockerd:docker.io docker:docker.io busybox:busybox-static openssl:openssl python3:python3; do
    command -v "${pair%%:*}" >/dev/null || missing+=("${pair##*:}")
done
# A real PostgreSQL, started by each test process in a directory of its own.
compgen -G '/usr/lib/postgresql/*/bin/initdb' >/dev/null || missing+=(postgresql)
python3 -c "import ensurepip" 2>/dev/null || missing+=(python3-venv)
command -v setpriv >/dev/null || missing+=(util-linux)
[ -e /usr/include/stdio.h ] || missing+=(libc6-dev)
if [ "${#missing[@]}" -gt 0 ]; then
    mapfile -t missing < <(printf '%s\n' "${missing[@]}" | sort -u)
    sudo=""
    if [ "$(id -u)" -ne 0 ]; then sudo="sudo"; fi
    $sudo apt-get update -q
    $sudo env DEBIAN_FRONTEND=noninteractive apt-get install -qy --no-install-recommends "${missing[@]}"
fi
if [ "$(id -u)" -ne 0 ]; then
    echo "The tests of a full disk mount a small tmpfs and must run as root: sudo -E ./scripts/test.sh" >&2
    exit 1
fi

say "format"
cargo fmt --all --check

say "lints"
cargo clippy --locked --workspace --all-targets -- -D warnings

# The end-to-end tests start the built binary, so it is built first; and before it the one that an upgrade replaces it
# by, which differs in its version and its protocol on disk.
say "build"
binaries="${CARGO_TARGET_DIR:-target}/debug"
cargo build --locked -p parhelia --features next
cp "$binaries/parhelia" "$binaries/parhelia-next"
cargo build --locked --workspace

say "tests"
cargo test --locked --workspace --exclude parhelia-sim --no-fail-fast

# Optimized, as it simulates thousands of hours.
say "simulation"
PARHELIA_SIM_HOURS="${PARHELIA_SIM_HOURS:-10000}" \
    cargo test --locked --profile quick -p parhelia-sim --no-fail-fast -- --show-output

say "documentation"
RUSTDOCFLAGS="-D warnings" cargo doc --locked --workspace --no-deps --quiet

say "all of it passed"
