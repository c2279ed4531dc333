#!/usr/bin/env bash
# Installs what the tests use besides Rust, on Debian: a C compiler for SQLite, tmux and vim (people at a terminal),
# faketime for clocks that jump, mount for small disks, Docker (each of its tests starts a private engine of its own) and a
# static busybox for its image, openssl for a certificate, PostgreSQL, and Python for clients and checkers that we did not
# write (crates/cli/tests/e2e/requirements.txt).
set -euo pipefail

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
    echo "The tests of a full disk mount a small tmpfs and must run as root: use sudo -E" >&2
    exit 1
fi
