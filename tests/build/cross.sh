#!/bin/sh
# cross.sh [MACHINE...]: print the directory of compilers for other machines, and cmocka for them.
# They are Debian's own packages of the suite that runs here, unpacked under build/cross (170 MB
# for all machines; fetched once, signatures are checked, nothing is installed, root is not
# needed).  Exit status 1 and a reason on standard error when they cannot be had.
#
#     MACHINE: s390x i686 aarch64 riscv64; none: all of them
#     bin/ARCH-gcc  ARCH/libcmocka.a  include/cmocka.h       for each of them
#     bin/qemu-*                                             where the machine has no qemu-user
#
# DXPU_CROSS_DIR names another place than build/cross; DXPU_CROSS_FETCH=no forbids fetching.
# SPDX-License-Identifier: MIT
set -eu
export LC_ALL=C

fail() {
    echo "cross.sh: no cross compilers: $*" >&2
    exit 1
}

top=$(cd "$(dirname "$0")/../.." && pwd)
dir=${DXPU_CROSS_DIR:-$top/build/cross}
case $dir in
/*) ;;
*) dir=$PWD/$dir ;;
esac
root=$dir/root
apt=$dir/apt
archs=
libraries=
emulators=
[ $# -gt 0 ] || set -- s390x i686 aarch64 riscv64
for machine in "$@"; do
    case $machine in
    i686) libc=i386 qemu=i386 ;;
    aarch64) libc=arm64 qemu=aarch64 ;;
    s390x | riscv64) libc=$machine qemu=$machine ;;
    *) fail "no machine $machine: s390x, i686, aarch64 or riscv64" ;;
    esac
    archs="$archs $machine-linux-gnu"
    libraries="$libraries libc6-dev-$libc-cross"
    command -v "qemu-$qemu" >/dev/null || emulators="$emulators qemu-$qemu"
done

have() {
    for arch in $archs; do
        grep -qsxF "$arch" "$dir/ready" || return 1
    done
    for emulator in $emulators; do
        [ -x "$dir/bin/$emulator" ] || return 1
    done
}

if ! have; then
    [ "$(uname -m)" = x86_64 ] || fail "the packages that can be fetched are for x86_64 only"
    [ "${DXPU_CROSS_FETCH:-yes}" != no ] || fail "fetching is forbidden (DXPU_CROSS_FETCH=no)"
    command -v flock >/dev/null || fail "flock is not here"
    # One fetch at a time; who waited finds it done.
    mkdir -p "$dir" || fail "cannot write to $dir"
    exec 9>"$dir/lock"
    flock 9
fi
if have; then
    echo "$dir"
    exit 0
fi

# A compiler finds its parts beside itself, also when the directory was moved; its libraries are
# unpacked, the C library is this machine's, for which its suite built it.
wrap() {
    cat >"$dir/bin/$1" <<END
#!/bin/sh
root=\$(cd "\$(dirname "\$0")/../root" && pwd)
path=\$root/usr/lib/x86_64-linux-gnu:\$root/lib/x86_64-linux-gnu
LD_LIBRARY_PATH=\$path exec "\$root/usr/bin/$1" "\$@"
END
    chmod +x "$dir/bin/$1"
}

build_cmocka() {
    mkdir -p "$dir/$1"
    "$dir/bin/$1-gcc" -std=gnu11 -O1 -w -DHAVE_CONFIG_H -I"$dir/include" -c \
        -o "$dir/$1/libcmocka.a" "$dir/include/cmocka.c" >"$dir/log" 2>&1 ||
        fail "cmocka does not compile for $1: $(tail -n 3 "$dir/log" | tr '\n' ' ')"
}

suite=$(. /etc/os-release && echo "${VERSION_CODENAME:-}")
[ -n "$suite" ] || fail "this machine's Debian suite has no name"
. "$top/tests/guest/apt.sh"
rm -rf "$dir/ready" "$root" "$dir/bin" "$dir/include"
mkdir -p "$root" "$dir/bin" "$dir/include"
apt_kinds="deb deb-src"
apt_open "$apt" "$suite"
# The emulators that are not static: a fifth of the size, with their libraries.
# shellcheck disable=SC2086 # lists
apt_private install -y --download-only $(printf 'gcc-%s ' $archs) $libraries \
    ${emulators:+qemu-user}
for package in "$apt"/cache/archives/*.deb; do
    case ${package##*/} in
    libc6_* | libgcc-s1_* | libstdc++* | lib*san* | libgomp* | libitm* | libquadmath*) ;;
    *) dpkg-deb -x "$package" "$root" || fail "cannot unpack ${package##*/} (disk full?)" ;;
    esac
done
rm -rf "$root/usr/share/doc" "$root/usr/share/man" "$root/usr/share/locale"
for emulator in $emulators; do
    wrap "$emulator"
done
for qemu in "$root"/usr/bin/qemu-*; do
    [ -e "$dir/bin/${qemu##*/}" ] || rm -f "$qemu"
done

(cd "$apt/cache" && apt_private source --download-only cmocka)
tar -xf "$apt"/cache/cmocka_*.orig.tar.?z -C "$apt/cache" || fail "cannot unpack cmocka"
cp "$apt"/cache/cmocka-*/src/cmocka.c "$apt"/cache/cmocka-*/include/*.h "$dir/include/"
cat >"$dir/include/config.h" <<'END'
#define HAVE_INTTYPES_H 1
#define HAVE_SIGNAL_H 1
#define HAVE_STDINT_H 1
#define HAVE_STDIO_H 1
#define HAVE_STDLIB_H 1
#define HAVE_STRING_H 1
#define HAVE_STRINGS_H 1
#define HAVE_TIME_H 1
#define HAVE_UNISTD_H 1
#define HAVE_MALLOC_H 1
#define HAVE_CLOCK_GETTIME 1
#define HAVE_STRUCT_TIMESPEC 1
END
for arch in $archs; do
    wrap "$arch-gcc"
    build_cmocka "$arch"
done
find "$root" -name '*.d' -prune -exec rm -rf {} + # make takes such names for lists of headers
rm -rf "$apt" "$dir/log"
printf '%s\n' $archs >"$dir/ready"
echo "$dir"
