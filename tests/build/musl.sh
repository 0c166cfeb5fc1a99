#!/bin/sh
# musl.sh: print a compiler for musl: this machine's musl-gcc, or Debian's own package of the
# suite that runs here, unpacked under build/musl (1 MB is fetched once; signatures are checked,
# nothing is installed, root is not needed).  Exit status 1 and a reason on standard error when it
# cannot be had.  DXPU_MUSL_DIR names another place; DXPU_CROSS_FETCH=no forbids fetching.
# SPDX-License-Identifier: MIT
set -eu
export LC_ALL=C

fail() {
    echo "musl.sh: no musl: $*" >&2
    exit 1
}

if command -v musl-gcc; then
    exit 0
fi
top=$(cd "$(dirname "$0")/../.." && pwd)
dir=${DXPU_MUSL_DIR:-$top/build/musl}
mkdir -p "$dir" && dir=$(cd "$dir" && pwd)
if [ ! -e "$dir/ready" ]; then
    [ "$(uname -m)" = x86_64 ] || fail "the packages that can be fetched are for x86_64 only"
    [ "${DXPU_CROSS_FETCH:-yes}" != no ] || fail "fetching is forbidden (DXPU_CROSS_FETCH=no)"
    command -v flock >/dev/null || fail "flock is not here"
    exec 9>"$dir/lock" # one fetch at a time; who waited finds it done
    flock 9
fi
if [ ! -e "$dir/ready" ]; then
    suite=$(. /etc/os-release && echo "${VERSION_CODENAME:-}")
    [ -n "$suite" ] || fail "this machine's Debian suite has no name"
    . "$top/tests/guest/apt.sh"
    apt_open "$dir/apt" "$suite"
    (cd "$dir/apt/cache/archives" && apt_private download musl musl-dev musl-tools)
    for package in "$dir"/apt/cache/archives/*.deb; do
        dpkg -x "$package" "$dir" || fail "cannot unpack ${package##*/} (disk full?)"
    done
    sed -i "s, /usr/, $dir/usr/,g; s,-L/usr/,-L$dir/usr/,g" \
        "$dir/usr/lib/x86_64-linux-musl/musl-gcc.specs"
    printf '#!/bin/sh\nexec gcc "$@" -specs %s\n' \
        "$dir/usr/lib/x86_64-linux-musl/musl-gcc.specs" >"$dir/musl-gcc"
    chmod +x "$dir/musl-gcc"
    rm -rf "$dir/apt" "$dir/usr/share"
    : >"$dir/ready"
fi
echo "$dir/musl-gcc"
