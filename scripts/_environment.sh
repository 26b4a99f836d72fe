# Sourced by scripts/run and scripts/test: finds Python, makes .venv, sets PY.
# Usage: edgekit_environment EXTRA   (EXTRA is "" or "[dev]")

edgekit_python() {  # PYTHON, or the first of the usual names that is new enough
    local candidate candidates=(python3 python3.14 python3.13 python3.12 python3.11 python3.10 python)
    local found="none was found (set PYTHON to name one)"
    if [ -n "${PYTHON:-}" ]; then
        candidates=("$PYTHON") found="PYTHON=$PYTHON is not"
    fi
    for candidate in "${candidates[@]}"; do
        if "$candidate" -c 'import sys; sys.exit(sys.version_info < (3, 10))' >/dev/null 2>&1; then
            command -v "$candidate"
            return 0
        fi
    done
    echo "edgekit needs Python 3.10 or newer; $found" >&2
    return 3
}

edgekit_pip() {  # quiet, but what pip says is shown when it fails
    local log
    log=$(mktemp)
    if ! "$@" >"$log" 2>&1; then
        cat "$log" >&2
        rm -f "$log"
        echo "installing edgekit's packages failed; is a package index reachable?" >&2
        return 3
    fi
    rm -f "$log"
}

edgekit_install() {  # tests get the locked versions, under which the recorded bytes hold
    if [ "$1" = "[dev]" ]; then
        # half the time is in compiling; tests compile what they import
        if edgekit_pip "$PY" -m pip install --no-compile --require-hashes -r requirements-lock.txt; then
            # the build backend is locked, too
            edgekit_pip "$PY" -m pip install --no-deps --no-build-isolation -e .
            return
        fi
        if [ -n "${CI:-}" ]; then
            echo "the versions of requirements-lock.txt do not install here; CI takes no others" >&2
            return 3
        fi
        echo "the versions of requirements-lock.txt do not install here; taking the newest" >&2
    fi
    edgekit_pip "$PY" -m pip install -e ".$1"
}

edgekit_torch() {  # the extra edgekit[torch] as the tests run it, in the build that pip offers
    local want=("torch==2.13.0" "onnxscript==0.7.2")
    [ -x .venv/bin/python ] || return 1
    "$PY" - "${want[@]}" <<'PYTHON' && return
import sys
from importlib.metadata import PackageNotFoundError, version

try:
    found = {f"{name}=={version(name).partition('+')[0]}" for name in ("torch", "onnxscript")}
except PackageNotFoundError:
    found = set()
sys.exit(found != set(sys.argv[1:]))
PYTHON
    echo "installing ${want[*]}" >&2
    edgekit_pip "$PY" -m pip install "${want[@]}"
}

edgekit_uv() {  # sets UV: the one that is installed, or one in a folder of its own
    UV=$(command -v uv) && return 0
    local home=${XDG_CACHE_HOME:-$HOME/.cache}/edgekit-uv base
    UV=$home/bin/uv
    [ ! -x "$UV" ] || return 0
    base=$(edgekit_python) && "$base" -m venv "$home" || return 3
    edgekit_pip "$home/bin/python" -m pip install 'uv>=0.5'
}

edgekit_compile() {  # also where PYTHONDONTWRITEBYTECODE would have every start compile again
    "$PY" -m compileall -q edgekit edgekit_device >/dev/null 2>&1 || true
}

edgekit_environment() {
    local extra=$1 base stamp want
    base=$(edgekit_python) || return 3
    want=$(cat pyproject.toml requirements-lock.txt | cksum)
    export PIP_DISABLE_PIP_VERSION_CHECK=1 PIP_NO_INPUT=1
    # an interrupted first run leaves a .venv without pip
    if [ -d .venv ] && [ ! -e .venv/edgekit-stamp ] && ! .venv/bin/python -m pip --version >/dev/null 2>&1; then
        rm -rf .venv
    fi
    if [ ! -x .venv/bin/python ] && [ ! -d .packages ]; then
        echo "making .venv with $("$base" --version)" >&2
        if ! "$base" -m venv .venv >/dev/null 2>&1; then
            rm -rf .venv
            echo "the venv module is missing here; using $base as it is, packages in .packages" >&2
            mkdir -p .packages
        fi
    fi
    if [ -x .venv/bin/python ]; then
        PY=$PWD/.venv/bin/python
        stamp=.venv/edgekit-stamp
        # what scripts/test installs holds all that scripts/run needs
        if [ "$(cat "$stamp" 2>/dev/null)" != "$want[dev]" ] &&
            [ "$(cat "$stamp" 2>/dev/null)" != "$want$extra" ]; then
            echo "installing edgekit and what it needs into .venv" >&2
            edgekit_install "$extra" || return 3
            echo "$want$extra" >"$stamp"
        fi
        edgekit_compile
        return 0
    fi
    PY=$base
    stamp=.packages/edgekit-stamp
    export PYTHONPATH="$PWD:$PWD/.packages${PYTHONPATH:+:$PYTHONPATH}"
    if [ "$(cat "$stamp" 2>/dev/null)" != "$want[dev]" ] &&
        [ "$(cat "$stamp" 2>/dev/null)" != "$want$extra" ]; then
        if "$base" -m pip --version >/dev/null 2>&1; then
            echo "installing what edgekit needs into .packages" >&2
            edgekit_pip "$base" -m pip install --upgrade --target .packages ".$extra" || return 3
            # the checkout comes first on the path; a copy beside it would only go stale
            rm -rf .packages/edgekit .packages/edgekit_device
        else
            echo "pip is missing too; trying with the packages that are installed" >&2
            "$base" -c 'import numpy, onnx, onnxruntime, yaml, pydantic, click, rich, paramiko, jinja2, ortools, PIL' \
                || { echo "install the packages named in pyproject.toml, or python3-venv" >&2; return 3; }
        fi
        echo "$want$extra" >"$stamp"
    fi
    edgekit_compile
}
