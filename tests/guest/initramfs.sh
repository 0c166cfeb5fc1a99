#!/bin/sh
# tests/guest/initramfs.sh OUTPUT [FILE...]: the guest's root file system, from the directory that
# fetch.sh prints and tests/guest/init.  Further files go to /bin of the guest, modules (*.ko) to
# /modules; what a directory holds is added at its place.  Not compressed: the guest's
# kernel has less to do.
# SPDX-License-Identifier: MIT
set -eu
here=$(cd "$(dirname "$0")" && pwd)
[ $# -ge 1 ] || { echo "usage: initramfs.sh OUTPUT [FILE...]" >&2; exit 2; }
output=$1
shift
case $output in
/*) ;;
*) output=$PWD/$output ;;
esac
dir=$("$here/fetch.sh")
tree=$(mktemp -d)
trap 'rm -rf "$tree"' EXIT
# libraries are replaced, and busybox gets its names, once for each version of what does it
short=$dir/short-$(cat "$0" "$here/stubs.py" | cksum | cut -d ' ' -f 1)
if [ ! -d "$short" ]; then
    cp -R "$dir/root/." "$tree"
    python3 "$here/stubs.py" "$tree"
    mkdir -p "$tree/sbin"
    # the kernel would run modprobe, which has no index of modules, several times as it boots
    for name in $("$tree/bin/busybox" --list | grep -v '^modprobe$'); do
        ln -s ../bin/busybox "$tree/sbin/$name"
    done
    made=$short.$$
    { cp -R "$tree" "$made" && mv -T "$made" "$short"; } 2>/dev/null || rm -rf "$made"
else
    cp -R "$short/." "$tree"
fi
mkdir -p "$tree/modules" "$tree/proc" "$tree/sys" "$tree/dev" "$tree/tmp" "$tree/etc"
# in the order in which they must be loaded, at once or by the test that needs them; what a kernel
# has built in or lacks is not there
modules='crc64 crct10dif_common crct10dif_generic crc-t10dif crc64-rocksoft t10-pi
         nvme-keyring nvme-auth nvme-core nvme vmd'
later='md-mod raid1'
for module in $modules $later; do
    [ ! -e "$dir/modules/$module.ko" ] || cp "$dir/modules/$module.ko" "$tree/modules/"
done
for module in $modules; do
    [ ! -e "$tree/modules/$module.ko" ] || echo "$module"
done >"$tree/modules/order"
for file in "$@"; do
    [ ! -d "$file" ] || {
        cp -R "$file/." "$tree"
        continue
    }
    case $file in
    *.ko) cp "$file" "$tree/modules/" ;;
    *) cp "$file" "$tree/bin/" ;;
    esac
done
cp "$here/init" "$tree/init"
chmod 755 "$tree/init"
# the guest's own busybox has a cpio, so the machine needs none
(cd "$tree" && find . | "$dir/root/bin/busybox" cpio -o -H newc >"$output.new" 2>/dev/null)
mv "$output.new" "$output"
