#!/bin/sh
# tests/proof/cbmc.sh: print the command, one word a line, that runs CBMC 6.
# That is the machine's own cbmc when it is of version 6 or newer, else Debian's 6.6 unpacked under
# build/cbmc (76 MB are fetched once; nothing is installed, root is not needed).  Exit status 1 and
# a reason on standard error when neither can be had.
#
# DXPU_CBMC_DIR names another place than build/cbmc; DXPU_CBMC_FETCH=no forbids fetching.
# SPDX-License-Identifier: MIT
set -eu
export LC_ALL=C

fail() {
    echo "cbmc.sh: no CBMC: $*" >&2
    exit 1
}

recent() {
    major=$("$@" --version 2>/dev/null | sed -n '1s/^\([0-9]*\)\..*/\1/p')
    [ -n "$major" ] && [ "$major" -ge 6 ]
}

print() {
    printf '%s\n' "$@"
    exit 0
}

own=$(command -v cbmc || true)
if [ -n "$own" ] && recent "$own"; then
    print "$own"
fi

top=$(cd "$(dirname "$0")/../.." && pwd)
dir=${DXPU_CBMC_DIR:-$top/build/cbmc}
case $dir in
/*) ;;
*) dir=$PWD/$dir ;;
esac
[ "$(uname -m)" = x86_64 ] || fail "the copy that can be fetched is for x86_64 only"
root=$dir/root
lib=$root/usr/lib/x86_64-linux-gnu

# The loader is called by name, since the copy brings its own, newer C library.
set -- "$lib/ld-linux-x86-64.so.2" --library-path "$lib:$root/usr/lib" "$root/usr/bin/cbmc"
[ ! -e "$dir/ready" ] || ! recent "$@" || print "$@"

[ "${DXPU_CBMC_FETCH:-yes}" != no ] || fail "fetching is forbidden (DXPU_CBMC_FETCH=no)"
command -v flock >/dev/null || fail "flock is not here; install CBMC 6"

# One fetch at a time; who waited finds it done.
mkdir -p "$dir" || fail "cannot write to $dir"
exec 9>"$dir/lock"
flock 9
[ ! -e "$dir/ready" ] || ! recent "$@" || print "$@"

. "$top/tests/guest/apt.sh"
apt=$dir/apt
rm -rf "$root" "$dir/ready"
apt_open "$apt" trixie
apt_private install -y --download-only cbmc
mkdir -p "$root"
for package in "$apt"/cache/archives/*.deb; do
    [ -e "$package" ] || fail "apt-get fetched nothing"
    dpkg -x "$package" "$root" || fail "cannot unpack ${package##*/} (disk full?)"
done
[ ! -d "$root/lib/x86_64-linux-gnu" ] || [ -L "$root/lib" ] ||
    cp -a "$root/lib/x86_64-linux-gnu/." "$lib/"
find "$root" -name '*.d' -prune -exec rm -rf {} + # make takes such names for lists of headers
rm -rf "$apt"
recent "$@" || fail "the copy in $dir does not run"
: >"$dir/ready"
print "$@"
