#!/bin/sh
# Makes .venv with all that the Makefile's routines need; `make setup` calls it. Nothing changed: done at once.
#
#   PYTHON           the interpreter that .venv is built on; unset: that of .venv, else python3 or a newer one on the PATH
#   TORCH_CPU_INDEX  an index of torch's builds without CUDA, to look for torch there too
#
# pip's own settings (pip.conf, PIP_*, proxies) are honoured: nothing here names an index.
set -eu
cd "$(dirname "$0")/.."

PYTHON=${PYTHON:-}
TORCH_CPU_INDEX=${TORCH_CPU_INDEX:-}
EXTRAS=planner,trainer,demo,dev,tracing
STAMP=.venv/.set-up
# Measured with the pins of constraints.txt on Linux x86-64.
CPU_DOWNLOAD="0.5 GB" CPU_DISK="2 GB" CPU_DISK_KB=2200000
CUDA_DOWNLOAD="3.0 GB" CUDA_DISK="6 GB" CUDA_DISK_KB=6200000

say() { printf '%s\n' "$*"; }

die() {
    printf '\nmake setup: %s\n' "$1" >&2
    shift
    for line in "$@"; do printf '  %s\n' "$line" >&2; done
    exit 1
}

# What .venv depends on, the folder included.
fingerprint() { { pwd -P; cat pyproject.toml constraints.txt tools/setup.sh; } | cksum; }

is_new_enough() { "$1" -c 'import sys; sys.exit(sys.version_info < (3, 11))' >/dev/null 2>&1; }

version_of() { "$1" -c 'import sys; print("%d.%d" % sys.version_info[:2])' 2>/dev/null; }

# .venv has pip, and is where it was made: the scripts of a moved one point to where it was.
venv_works() { .venv/bin/python -m pip --version >/dev/null 2>&1 && grep -qsF "$(pwd -P)/.venv" .venv/pyvenv.cfg; }

# .venv is also of the Python asked for.
venv_serves() { venv_works && [ "$(version_of .venv/bin/python)" = "$(version_of "$PYTHON")" ]; }

# The first interpreter on the PATH that would do, if any.
find_python() {
    for name in python3 python3.13 python3.12 python3.11 python3.14 python; do
        if is_new_enough "$name"; then say "$name"; return; fi
    done
}

choose_python() {
    if [ -n "$PYTHON" ]; then return; fi
    if is_new_enough .venv/bin/python && venv_works; then PYTHON=.venv/bin/python; return; fi
    PYTHON=$(find_python)
    PYTHON=${PYTHON:-python3}
}

check_python() {
    if is_new_enough "$PYTHON"; then
        "$PYTHON" -c 'import ensurepip, venv' >/dev/null 2>&1 && return
        die "$PYTHON comes without the modules venv and ensurepip, which make .venv." \
            "Debian and Ubuntu keep them in a package: sudo apt-get install python3-venv" \
            "(python$(version_of "$PYTHON")-venv for an interpreter beside the system's). Then run make again."
    fi
    version=$(version_of "$PYTHON") || version=
    found=$(find_python)
    if [ -n "$version" ]; then problem="$PYTHON is Python $version; Python 3.11 or newer is needed."
    else problem="there is no working Python called $PYTHON; Python 3.11 or newer is needed."; fi
    if [ -n "$found" ]; then die "$problem" "This machine has one: make setup PYTHON=$found"; fi
    die "$problem" "Install one with your system's package manager or from python.org, then for example:" \
        "make setup PYTHON=python3.12" "PYTHON is needed once only; later routines take the one in .venv."
}

free_kb() { df -Pk "$1" | awk 'NR == 2 { print $4 }'; }

free_gb() { free_kb "$1" | awk '{ printf "%.1f GB", $1 / 1e6 }'; }

announce() {
    if [ -f $STAMP ] && venv_serves; then
        say "What .venv is made of has changed since it was set up: bringing it up to date, downloading what is new."
        return
    fi
    say "Setting up .venv with $PYTHON (Python $(version_of "$PYTHON")); pip downloads from where its settings say."
    say "  download: about $CPU_DOWNLOAD with a CPU build of torch, about $CUDA_DOWNLOAD with its default build for Linux, which brings CUDA"
    say "  disk:     about $CPU_DISK or $CUDA_DISK in .venv, and the download again in pip's cache; $(free_gb .) are free here"
    if [ -n "$TORCH_CPU_INDEX" ]; then say "  torch:    the CPU build, from $TORCH_CPU_INDEX"
    else say "  torch:    the build that pip's settings lead to; the CPU build is enough for demo and tests (README: two commands)"; fi
    say "  time:     2 to 3 minutes beside the download; what pip has in its cache already is not downloaded again"
}

check_disk() {
    if [ -d .venv/lib ]; then return; fi # most of it may be there already
    kb=$(free_kb .)
    if [ "$kb" -lt $CPU_DISK_KB ]; then
        die "only $(free_gb .) are free in this folder, and .venv needs about $CPU_DISK." "Make room, or clone onto a larger disk."
    fi
    if [ -z "$TORCH_CPU_INDEX" ] && [ "$kb" -lt $CUDA_DISK_KB ]; then
        say "  warning:  torch's default build would fill the disk; its CPU build would not (README: two commands)"
    fi
}

# .venv as it is where it serves, a partial one of an earlier try included; a new one otherwise.
make_venv() {
    if venv_serves; then return; fi
    if [ -e .venv ]; then say "The .venv that is here is of another folder or Python, or does not work: making it anew."; fi
    "$PYTHON" -m venv --clear .venv && return
    die "$PYTHON -m venv failed; its message is above." "$(free_gb .) are free in this folder."
}

pip_install() { .venv/bin/python -m pip install --no-user --disable-pip-version-check "$@"; }

# One small package asked for, so that a missing network is called by its name, and soon.
check_index() {
    pip_install --quiet --dry-run --ignore-installed --no-deps --retries 2 protobuf >/dev/null && return
    die "pip does not reach a package index; its message is above. Nothing has been installed." "$@"
}

install_packages() {
    set -- --constraint constraints.txt --editable ".[$EXTRAS]"
    if [ -n "$TORCH_CPU_INDEX" ]; then set -- --extra-index-url "$TORCH_CPU_INDEX" "$@"; fi
    if ! [ -t 1 ]; then set -- --quiet "$@"; fi
    say "Installing (pip install $*)"
    pip_install "$@"
}

explain_pip_failure() {
    die "pip could not install everything; its message is above. The usual reasons:" \
        "- No room: $(free_gb .) are free in this folder, $(free_gb "${TMPDIR:-/tmp}") in ${TMPDIR:-/tmp} (set TMPDIR to move that)." \
        "- A package that no index gave ('conflicting dependencies' in pip's words):" "$@" \
        "- Nothing for Python $(version_of .venv/bin/python) on $(uname -sm): the pins are known to exist for 3.11 to 3.14 on Linux x86-64." \
        "What has been installed stays: run make again once the reason is gone, it goes on from there."
}

compile_kernels() {
    # It knows them by what is in their files, and by the versions of what compiles them.
    if .venv/bin/python -m planner_service.kernel_cache; then return; fi
    say "Compiling the search's kernels, which are kept, so that no plan waits for a compiler (about a minute)"
    .venv/bin/python -m planner_service.warmup || die "the search's kernels did not compile; the message is above."
}

now=$(fingerprint)
if [ -x .venv/bin/dip ] && [ -f $STAMP ] && [ "$(cat $STAMP)" = "$now" ]; then
    compile_kernels
    exit
fi
choose_python
check_python
announce
check_disk
make_venv
rm -f $STAMP
# Words for both moments at which an index can turn out to be missing.
set -- "  pip asks the index that '.venv/bin/python -m pip config list' and PIP_* of the environment name, or else its default." \
    "  Is this machine online? Behind a proxy set HTTPS_PROXY; with a mirror of your own set PIP_INDEX_URL."
check_index "$@"
install_packages || explain_pip_failure "$@"
printf '%s\n' "$now" >$STAMP
compile_kernels
say "Set up: .venv is ready, its command is .venv/bin/dip."
