#!/bin/sh
# qemu.sh: print the command, one word a line, that runs a QEMU with a vfio-user client.
# That is the machine's own QEMU when it is 10.1 or newer, else Debian's 11.1 unpacked under
# build/qemu (38 MB are fetched once; nothing is installed, root is not needed).  Exit status 1 and
# a reason on standard error when neither can be had.
#
#     mapfile -t qemu < <(tests/support/qemu.sh) && "${qemu[@]}" -version
#
# `qemu.sh gl` prints that of a copy under build/qemu-gl (250 MB are fetched once) which also has
# virtio-gpu-gl and, for `-display sdl,gl=on`, OpenGL without a screen.
#
# DXPU_QEMU names another binary (and is then not checked further than its version);
# DXPU_QEMU_DIR another place than build/qemu; DXPU_QEMU_FETCH=no forbids fetching.
set -eu
export LC_ALL=C

fail() {
    echo "qemu.sh: no QEMU with a vfio-user client: $*" >&2
    exit 1
}

# recent COMMAND...: does it run, is it 10.1 or newer, and does it have the client?
recent() {
    version=$("$@" -version 2>/dev/null | sed -n '1s/.*version \([0-9]*\)\.\([0-9]*\).*/\1 \2/p')
    [ -n "$version" ] || return 1
    major=${version% *}
    minor=${version#* }
    { [ "$major" -gt 10 ] || { [ "$major" -eq 10 ] && [ "$minor" -ge 1 ]; }; } || return 1
    # not the list of all devices, for which it would load the modules of another QEMU
    "$@" -device vfio-user-pci,help 2>/dev/null | grep -q 'vfio-user-pci options'
}

print() {
    printf '%s\n' "$@"
    exit 0
}

gl=
case ${1:-} in
'') ;;
gl) gl=-gl ;;
*) fail "usage: qemu.sh [gl]" ;;
esac
if [ -n "${DXPU_QEMU:-}" ] && [ -z "$gl" ]; then
    recent "$DXPU_QEMU" || fail "DXPU_QEMU=$DXPU_QEMU is older than 10.1 or has no vfio-user-pci"
    print "$DXPU_QEMU"
fi
own=$(command -v qemu-system-x86_64 || true)
if [ -n "$own" ] && [ -z "$gl" ] && recent "$own"; then
    print "$own"
fi

top=$(cd "$(dirname "$0")/../.." && pwd)
dir=${DXPU_QEMU_DIR:-$top/build/qemu}$gl
case $dir in
/*) ;;
*) dir=$PWD/$dir ;;
esac
[ "$(uname -m)" = x86_64 ] || fail "the copy that can be fetched is for x86_64 only"
root=$dir/root
lib=$root/usr/lib/x86_64-linux-gnu

# The loader is called by name, since the copy brings its own, newer C library.  Its modules come
# before those of another QEMU that is installed.
set -- env "QEMU_MODULE_DIR=$lib/qemu" SDL_VIDEODRIVER=offscreen SDL_AUDIODRIVER=dummy \
    "$lib/ld-linux-x86-64.so.2" --library-path "$lib:$lib/pulseaudio" \
    "$root/usr/bin/qemu-system-x86_64" -L "$root/usr/share/qemu" \
    -L "$root/usr/share/seabios"
[ ! -e "$dir/ready" ] || ! recent "$@" || print "$@"

[ "${DXPU_QEMU_FETCH:-yes}" != no ] || fail "fetching is forbidden (DXPU_QEMU_FETCH=no)"
for tool in apt-get dpkg dpkg-deb flock; do
    command -v $tool >/dev/null || fail "$tool is not here; install QEMU 10.1 or newer"
done

# One fetch at a time; who waited finds it done.
mkdir -p "$dir" || fail "cannot write to $dir"
exec 9>"$dir/lock"
flock 9
[ ! -e "$dir/ready" ] || ! recent "$@" || print "$@"

. "$top/tests/guest/apt.sh"
apt=$dir/apt
trap 'rm -rf "$root.new" "$apt"' EXIT # what is interrupted leaves no half of it
trap 'exit 1' HUP INT TERM
rm -rf "$root.new" "$dir/ready"
apt_open "$apt" trixie trixie-updates trixie-backports
apt_private install -y --download-only -t trixie-backports qemu-system-x86 seabios ipxe-qemu \
    ${gl:+qemu-system-modules-opengl qemu-system-gui}
[ -z "$gl" ] || apt_private install -y --download-only libegl1 libegl-mesa0 libgl1 libgl1-mesa-dri
mkdir -p "$root.new"
for package in "$apt"/cache/archives/*.deb; do
    [ -e "$package" ] || fail "apt-get fetched nothing"
    dpkg -x "$package" "$root.new" || fail "cannot unpack ${package##*/} (disk full?)"
done
# Suites from trixie on have /lib merged into /usr; a package may still ship the old place.
[ ! -d "$root.new/lib/x86_64-linux-gnu" ] || [ -L "$root.new/lib" ] ||
    cp -a "$root.new/lib/x86_64-linux-gnu/." "$root.new/usr/lib/x86_64-linux-gnu/"
rm -rf "$root"
mkdir -p "$root/usr/share"
for part in bin lib share/qemu share/seabios; do
    mv "$root.new/usr/$part" "$root/usr/$part"
done
rm -rf "$root.new"
find "$root" -name '*.d' -prune -exec rm -rf {} + # make takes such names for lists of headers
rm -rf "$apt"
recent "$@" || fail "the copy in $dir does not run"
: >"$dir/ready"
print "$@"
