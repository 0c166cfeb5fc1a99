#!/bin/sh
# tests/guest/more.sh SET: print the directory that holds further programs for a guest.
# They are Debian's own packages of the suite that fetch.sh has, unpacked beside its directory
# (signatures are checked, nothing is installed, root is not needed).  Exit status 1 and a reason on
# standard error when they cannot be had.
#
#     mesa    Mesa, eglinfo, glmark2-es2-drm; headers of EGL and OpenGL ES (70 MB are fetched once)
#     iperf   iperf3 (15 MB)
#
#     root/ (programs, libraries, data)  include/
#
# DXPU_GUEST_SUITE, DXPU_GUEST_DIR and DXPU_GUEST_FETCH are those of fetch.sh.
# SPDX-License-Identifier: MIT
set -eu
export LC_ALL=C

fail() {
    echo "more.sh: not here: $*" >&2
    exit 1
}

top=$(cd "$(dirname "$0")/../.." && pwd)
dir=${DXPU_GUEST_DIR:-$top/build/guest}
case $dir in
/*) ;;
*) dir=$PWD/$dir ;;
esac
suite=${DXPU_GUEST_SUITE:-bookworm}
libraries=/usr/lib/x86_64-linux-gnu
headers= data=
case ${1:-} in
mesa)
    packages='mesa-utils-bin libegl1 libgles2 libegl-mesa0 libgl1-mesa-dri glmark2-es2-drm'
    headers='libegl-dev libgles-dev'
    # besides programs, what they look for by name; where it is depends on the suite
    files="/usr/bin/eglinfo.x86_64-linux-gnu /usr/bin/eglinfo /usr/bin/glmark2-es2-drm
           $libraries/libEGL.so.1 $libraries/libGLESv2.so.2 $libraries/libEGL_mesa.so.0
           $libraries/gbm/dri_gbm.so $libraries/dri/virtio_gpu_dri.so"
    data='/usr/share/glvnd /usr/share/drirc.d /usr/share/glmark2'
    ;;
iperf) packages=iperf3 files=/usr/bin/iperf3 ;;
*) fail "usage: more.sh mesa|iperf" ;;
esac
dir=$dir/$suite-$1
# What a directory was made of: one that another version of this script made is fetched again.
made_of=$(echo $packages $headers $files $data)
is_ready() {
    [ -e "$dir/ready" ] && [ "$(cat "$dir/ready")" = "$made_of" ]
}

if ! is_ready; then
    [ "$(uname -m)" = x86_64 ] || fail "the packages that can be fetched are for x86_64 only"
    [ "${DXPU_GUEST_FETCH:-yes}" != no ] || fail "fetching is forbidden (DXPU_GUEST_FETCH=no)"
    command -v flock >/dev/null || fail "flock is not here"
    mkdir -p "$dir" || fail "cannot write to $dir"
    exec 9>"$dir/lock"
    flock 9
fi
if is_ready; then
    echo "$dir"
    exit 0
fi

. "$top/tests/guest/apt.sh"
all=$dir/all
trap 'rm -rf "$all" "$dir/apt" "$dir/libraries"' EXIT
trap 'exit 1' HUP INT TERM
rm -rf "$all" "$dir/ready" "$dir/root" "$dir/include"
apt_open "$dir/apt" "$suite"
apt_private install -y --download-only $packages
[ -z "$headers" ] || (cd "$apt_dir/cache/archives" && apt_private download $headers)
apt_programs $files
for folder in $data; do
    [ ! -d "$all$folder" ] || {
        mkdir -p "$dir/root$folder"
        cp -R "$all$folder/." "$dir/root$folder"
    }
done
[ -z "$headers" ] || cp -R "$all/usr/include" "$dir/include"
echo "$made_of" >"$dir/ready"
echo "$dir"
