#!/bin/sh
# tests/cross.sh ARCH...: print a folder with compilers for other machines, and cmocka for them.
# They are Debian's own packages of the suite that runs here, unpacked under build/cross (about
# 40 MB are fetched for each, once; signatures are checked, nothing is installed, root is not
# needed).  Exit status 1 and a reason on standard error when they cannot be had.
#
#     bin/ARCH-gcc  bin/ARCH-gcc-ranlib ...  ARCH/libcmocka.a  include/cmocka.h
#
# ARCH is as in the package names: s390x-linux-gnu i686-linux-gnu aarch64-linux-gnu ...
# DXPU_CROSS_DIR names another place than build/cross; DXPU_CROSS_FETCH=no forbids fetching.
# SPDX-License-Identifier: MIT
set -eu
export LC_ALL=C

fail() {
    echo "cross.sh: no cross compiler: $*" >&2
    exit 1
}

top=$(cd "$(dirname "$0")/.." && pwd)
dir=${DXPU_CROSS_DIR:-$top/build/cross}
case $dir in
/*) ;;
*) dir=$PWD/$dir ;;
esac
root=$dir/root
apt=$dir/apt

missing() {
    for arch in "$@"; do
        [ -e "$dir/$arch/libcmocka.a" ] || return 0
    done
    return 1
}

# The compilers run on this machine's C library and on their own other libraries; they find their
# parts beside themselves.
wrap() {
    mkdir -p "$dir/bin"
    for tool in gcc; do
        cat >"$dir/bin/$1-$tool" <<END
#!/bin/sh
LD_LIBRARY_PATH=$root/usr/lib/x86_64-linux-gnu exec $root/usr/bin/$1-$tool -B$root/usr/$1/bin \\
    -isystem $root/usr/$1/include -B$root/usr/$1/lib -L$root/usr/$1/lib "\$@"
END
        chmod +x "$dir/bin/$1-$tool"
    done
}

build_cmocka() {
    mkdir -p "$dir/$1"
    "$dir/bin/$1-gcc" -std=gnu11 -O1 -w -I"$dir/cmocka" -I"$dir/include" -DHAVE_CONFIG_H \
        -c -o "$dir/$1/cmocka.o" "$dir/cmocka/cmocka.c" || fail "cmocka does not compile for $1"
    mv "$dir/$1/cmocka.o" "$dir/$1/libcmocka.a"
}
