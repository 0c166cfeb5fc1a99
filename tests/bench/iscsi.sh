#!/bin/sh
# tests/bench/iscsi.sh: print the directory that holds an iSCSI target and QEMU's client for it.
# They are Debian's own packages (tgt of the stable suite, qemu-block-extra of the suite of
# tests/support/qemu.sh), unpacked under build/iscsi (20 MB are fetched once; signatures are
# checked, nothing is installed, root is not needed).  Exit status 1 and a reason on standard error
# when they cannot be had.
#
#     root/ (tgtd, tgtadm, their loader and libraries)
#     qemu/block-iscsi.so  qemu/lib/ (its libraries)
#
# DXPU_ISCSI_DIR names another place than build/iscsi; DXPU_GUEST_FETCH=no forbids fetching.
# SPDX-License-Identifier: MIT
set -eu
export LC_ALL=C

fail() {
    echo "iscsi.sh: no iSCSI target: $*" >&2
    exit 1
}

top=$(cd "$(dirname "$0")/../.." && pwd)
dir=${DXPU_ISCSI_DIR:-$top/build/iscsi}
case $dir in
/*) ;;
*) dir=$PWD/$dir ;;
esac
programs='/usr/sbin/tgtd /usr/sbin/tgtadm'

if [ ! -e "$dir/ready" ]; then
    [ "$(uname -m)" = x86_64 ] || fail "the packages that can be fetched are for x86_64 only"
    [ "${DXPU_GUEST_FETCH:-yes}" != no ] || fail "fetching is forbidden (DXPU_GUEST_FETCH=no)"
    command -v flock >/dev/null || fail "flock is not here"
    # One fetch at a time; who waited finds it done.
    mkdir -p "$dir" || fail "cannot write to $dir"
    exec 9>"$dir/lock"
    flock 9
fi
if [ -e "$dir/ready" ]; then
    echo "$dir"
    exit 0
fi

. "$top/tests/guest/apt.sh"
apt=$dir/apt all=$dir/all client=$dir/client
# what is interrupted leaves no half of it
trap 'rm -rf "$apt" "$all" "$client" "$dir/libraries"' EXIT
trap 'exit 1' HUP INT TERM
rm -rf "$all" "$client" "$dir/root" "$dir/qemu"
apt_open "$apt" bookworm
apt_private install -y --download-only tgt
apt_programs $programs
"$dir/root/$loader" --library-path "$dir/root/lib" "$dir/root/usr/sbin/tgtd" --version \
    >/dev/null || fail "the unpacked tgtd does not run"

# Without the clients of other storage, which the package depends on.
apt_open "$apt" trixie trixie-updates trixie-backports
apt_private install -y --download-only libiscsi7
(cd "$apt/cache/archives" && apt_private download -t trixie-backports qemu-block-extra)
mkdir -p "$client" "$dir/qemu/lib"
for package in "$apt"/cache/archives/*.deb; do
    dpkg -x "$package" "$client" || fail "cannot unpack ${package##*/} (disk full?)"
done
cp "$client"/usr/lib/x86_64-linux-gnu/qemu/block-iscsi.so "$dir/qemu/" ||
    fail "qemu-block-extra has no block-iscsi.so"
for library in iscsi ibverbs rdmacm nl-3 nl-route-3 gcrypt gpg-error; do
    cp -L "$client"/usr/lib/x86_64-linux-gnu/lib$library.so.* "$dir/qemu/lib/" 2>/dev/null || true
done
: >"$dir/ready"
echo "$dir"
