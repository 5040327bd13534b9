#!/bin/sh
# Create the virtual environment $1 with a Python of at least 3.11, unless it is there and works.
# Takes $PYTHON, or else the first that will do of python3.13, python3.12, python3.11 and python3.
set -u

say() { printf '%s\n' "$*" >&2; }

venv=$1
candidates=${PYTHON:-python3.13 python3.12 python3.11 python3}

# Each check runs the command: a name on PATH may be a shim for a Python that is not installed.
new_enough() { "$1" -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null; }
can_make_venvs() { "$1" -c 'import ensurepip, venv' 2>/dev/null; }

create() {
    for python in $candidates; do
        if new_enough "$python" && can_make_venvs "$python"; then
            "$python" -m venv --clear "$venv" && return
        fi
    done
    return 1
}

# Debian ships Python without its venv module.
install_venv_module() {
    [ "$(id -u)" -eq 0 ] && command -v apt-get >/dev/null 2>&1 || return 1
    for python in $candidates; do
        if new_enough "$python"; then
            package=$("$python" -c 'import sys; print("python%d.%d-venv" % sys.version_info[:2])')
            say "$python cannot make virtual environments: installing $package with apt-get."
            apt-get update >&2 || return 1
            DEBIAN_FRONTEND=noninteractive apt-get install -y --no-install-recommends \
                "$package" >&2 && return
        fi
    done
    return 1
}

"$venv/bin/python" -m pip --version >/dev/null 2>&1 && new_enough "$venv/bin/python" && exit
create && exit
install_venv_module && create && exit
say "Slackwater needs Python 3.11 or newer with its venv module (tried: $candidates):" \
    "install them (on Debian: python3 and python3-venv), or name one with PYTHON=..."
exit 1
