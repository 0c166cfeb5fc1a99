#!/bin/sh
# tests/guest/module.sh: print the path of pci_endpoint_test.ko for the guest's kernel.
# Debian does not build that module; this builds it, unmodified, from linux-source against the
# linux-headers of that kernel, both unpacked under build/guest-module (150 MB are fetched once,
# signatures are checked, nothing is installed, root is not needed).  Exit status 1 and a reason on
# standard error when it cannot be had.
#
# DXPU_MODULE_DIR names another place, and so does DXPU_GUEST_DIR: its module/, so that trees which
# share a guest share the module; DXPU_GUEST_FETCH=no forbids fetching.
# SPDX-License-Identifier: MIT
set -eu
export LC_ALL=C

fail() {
    echo "module.sh: no pci_endpoint_test: $*" >&2
    exit 1
}

top=$(cd "$(dirname "$0")/../.." && pwd)
shared=${DXPU_GUEST_DIR:+$DXPU_GUEST_DIR/module}
dir=${DXPU_MODULE_DIR:-${shared:-$top/build/guest-module}}
case $dir in
/*) ;;
*) dir=$PWD/$dir ;;
esac
guest=$("$top/tests/guest/fetch.sh") || exit 1
# the kernel that the guest's other modules are for
release=$(grep -a -o 'vermagic=[^ ]*' "$guest/modules/vmd.ko" | sed -n '1s/vermagic=//p')
[ -n "$release" ] || fail "the guest's modules do not say their kernel"
module=$dir/$release/pci_endpoint_test.ko
if [ ! -e "$module" ]; then
    [ "${DXPU_GUEST_FETCH:-yes}" != no ] || fail "fetching is forbidden (DXPU_GUEST_FETCH=no)"
    for tool in flock make xz "${CC:-gcc}"; do
        command -v "$tool" >/dev/null || fail "$tool is not here"
    done
    # One build at a time; who waited finds it done.
    mkdir -p "$dir" || fail "cannot write to $dir"
    exec 9>"$dir/lock"
    flock 9
fi
if [ -e "$module" ]; then
    echo "$module"
    exit 0
fi

. "$top/tests/guest/apt.sh"
apt=$dir/apt
all=$dir/all
version=${release%%-*}     # 6.1.0
series=${version%.*}       # 6.1
common=${release%-*}-common # 6.1.0-56-common
rm -rf "$all" "$dir/source"
mkdir -p "$all" "$dir/source" "$dir/$release"
apt_open "$apt" bookworm bookworm-updates
(cd "$apt/cache/archives" && apt_private download "linux-headers-$release" "linux-headers-$common" \
    "linux-kbuild-$series" "linux-source-$series" libelf1)
for package in "$apt"/cache/archives/*.deb; do
    case $package in
    */linux-source-*) ;;
    *) dpkg -x "$package" "$all" || fail "cannot unpack ${package##*/} (disk full?)" ;;
    esac
done
dpkg-deb --fsys-tarfile "$apt"/cache/archives/linux-source-*.deb |
    tar -x -O "./usr/src/linux-source-$series.tar.xz" |
    tar -x -J --occurrence=1 -C "$dir/source" --strip-components=3 \
        "linux-source-$series/drivers/misc/pci_endpoint_test.c" ||
    fail "cannot unpack the kernel's source (disk full?)"
# The headers name the directory they would be installed to; ours lie elsewhere.
headers=$all/usr/src/linux-headers-$release
sed -i "s|/usr/src|$all/usr/src|" "$headers/Makefile"
echo 'obj-m := pci_endpoint_test.o' >"$dir/source/Makefile"
MAKEFLAGS= LD_LIBRARY_PATH=$all/usr/lib/x86_64-linux-gnu make -C "$headers" M="$dir/source" \
    CC="${CC:-gcc}" modules >"$dir/log" 2>&1 9>&- || fail "see $dir/log"
mv "$dir/source/pci_endpoint_test.ko" "$module"
rm -rf "$apt" "$all" "$dir/source"
echo "$module"
