#!/bin/sh
# tests/guest/fetch.sh: print the directory that holds a Linux guest's kernel and programs.
# They are Debian's own packages, unpacked under build/guest (130 MB are fetched once, 70 MB
# stay; signatures are checked, nothing is installed, root is not needed).  Exit status 1 and a
# reason on standard error when they cannot be had.
#
#     vmlinuz  modules/*.ko  root/ (busybox, fio, nvme, lspci, setpci and their libraries)
#
# DXPU_GUEST_SUITE names another suite than bookworm (Debian 12), kept beside the others.
# DXPU_GUEST_KERNEL=cloud has Debian's kernel for virtual machines, which has no vmd driver.
# DXPU_GUEST_DIR names another place than build/guest; DXPU_GUEST_FETCH=no forbids fetching.
# SPDX-License-Identifier: MIT
set -eu
export LC_ALL=C

fail() {
    echo "fetch.sh: no guest: $*" >&2
    exit 1
}

top=$(cd "$(dirname "$0")/../.." && pwd)
dir=${DXPU_GUEST_DIR:-$top/build/guest}
case $dir in
/*) ;;
*) dir=$PWD/$dir ;;
esac
suite=${DXPU_GUEST_SUITE:-bookworm}
case ${DXPU_GUEST_KERNEL:-} in
'') image=linux-image-amd64 dir=$dir/$suite ;;
cloud) image=linux-image-cloud-amd64 dir=$dir/$suite-cloud ;;
*) fail "DXPU_GUEST_KERNEL: must be cloud, or empty" ;;
esac
apt=$dir/apt
programs='/bin/busybox /usr/bin/fio /usr/sbin/nvme /usr/bin/lspci /usr/bin/setpci'
# What a PCIe device may want of Debian's kernel as modules; subdirectories are named where needed.
folders='lib lib/crc lib/math arch/x86/crypto crypto block drivers/nvme/common drivers/nvme/host
         drivers/pci/controller drivers/misc drivers/md drivers/virtio drivers/block fs fs/jbd2
         fs/ext4 drivers/gpu/drm drivers/gpu/drm/tiny drivers/gpu/drm/ttm drivers/gpu/drm/virtio
         net/core drivers/net'
# What a directory was made of: one that another version of this script made is fetched again.
made_of=$(echo $programs $folders)
is_ready() {
    [ -e "$dir/ready" ] && [ "$(cat "$dir/ready")" = "$made_of" ]
}

if ! is_ready; then
    [ "$(uname -m)" = x86_64 ] || fail "the packages that can be fetched are for x86_64 only"
    [ "${DXPU_GUEST_FETCH:-yes}" != no ] || fail "fetching is forbidden (DXPU_GUEST_FETCH=no)"
    command -v flock >/dev/null || fail "flock is not here"
    # One fetch at a time; who waited finds it done.
    mkdir -p "$dir" || fail "cannot write to $dir"
    exec 9>"$dir/lock"
    flock 9
fi
if is_ready; then
    echo "$dir"
    exit 0
fi

unpack_kernel() {
    kernel=$(APT_CONFIG=$apt/apt.conf apt-cache depends $image |
        sed -n 's/.*Depends: \(linux-image-[0-9].*\)/\1/p' | head -n 1)
    [ -n "$kernel" ] || fail "$image names no kernel"
    # what one package held is spread over three in later suites
    version=${kernel#linux-image-}
    for package in "$kernel" "linux-binary-$version" "linux-modules-$version"; do
        [ "$package" = "$kernel" ] || APT_CONFIG=$apt/apt.conf apt-cache show "$package" \
            >/dev/null 2>&1 || continue
        (cd "$apt/cache" && apt_private download "$package")
    done
    for package in "$apt"/cache/linux-*.deb; do
        dpkg-deb --fsys-tarfile "$package" | tar -x -C "$all" --keep-directory-symlink \
            --exclude './usr/share' || fail "cannot unpack ${package##*/} (disk full?)"
    done
    cp "$all"/boot/vmlinuz-* "$dir/vmlinuz" 2>/dev/null ||
        cp "$all"/usr/lib/modules/*/vmlinuz "$dir/vmlinuz" 2>/dev/null ||
        fail "$kernel holds no kernel"
    mkdir -p "$dir/modules"
    for folder in $folders; do
        find "$all"/lib/modules/*/kernel/"$folder" -maxdepth 1 -name '*.ko' \
            -exec cp {} "$dir/modules/" \; 2>/dev/null || true
        # later kernels have them compressed
        for module in "$all"/lib/modules/*/kernel/"$folder"/*.ko.xz; do
            name=${module##*/}
            [ ! -e "$module" ] ||
                "$dir/root/bin/busybox" xzcat "$module" >"$dir/modules/${name%.xz}"
        done
    done
    [ $image != linux-image-amd64 ] || [ -e "$dir/modules/vmd.ko" ] ||
        fail "$kernel has no vmd module"
}

. "$top/tests/guest/apt.sh"
all=$dir/all
# what is interrupted leaves no half of it
trap 'rm -rf "$all" "$apt" "$dir/libraries"' EXIT
trap 'exit 1' HUP INT TERM
rm -rf "$all" "$dir/ready" "$dir/root" "$dir"/short-* "$dir/modules"
apt_open "$apt" "$suite"
apt_private install -y --download-only busybox-static fio nvme-cli pciutils
apt_programs $programs
"$dir/root/$loader" --library-path "$dir/root/lib" "$dir/root/usr/bin/fio" --version \
    >/dev/null || fail "the unpacked fio does not run"
unpack_kernel
echo "$made_of" >"$dir/ready"
echo "$dir"
