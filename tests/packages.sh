#!/bin/sh
# tests/packages.sh TARGET: make sure that the packages which a target of make needs are there.
# Installs them when run as root; otherwise prints the line that would, and fails.
set -eu

command -v dpkg-query >/dev/null || exit 0 # not Debian: the compiler will name what is missing

packages='gcc libc6-dev make pkg-config libevent-dev libpcap-dev libjansson-dev libdeflate-dev
          libxdp-dev libbpf-dev zlib1g-dev libpng-dev libsqlite3-dev libseccomp-dev
          libcurl4-openssl-dev libsodium-dev libcmocka-dev python3'
case ${1:-check} in
demo-ha) tests= packages="$packages etcd-server" ;;
demo) tests= packages="$packages libdrm-dev" ;;
bench) tests= ;;
plots) tests= packages="$packages gnuplot-nox" ;;
cross) tests=1 packages="$packages clang-tidy cppcheck" ;;
*) tests=1 ;;
esac
if [ "$tests" ]; then
    # The sanitizer and fuzzer runtimes are in a package of the compiler's own version up to
    # Debian 12 (clang 14) and in an unversioned one from Debian 13 on; QEMU for RISC-V has a
    # package of its own since then.
    release=$(. /etc/os-release 2>/dev/null && echo "${VERSION_ID:-}")
    case $release in
    12) runtime=libclang-rt-14-dev riscv=qemu-system-misc ;;
    *) runtime=libclang-rt-dev riscv=qemu-system-riscv ;;
    esac
    packages="$packages binutils pciutils clang $runtime g++ gcc-arm-none-eabi
              gcc-riscv64-unknown-elf qemu-system-arm $riscv clang-format git libdrm-dev xz-utils
              iproute2 valgrind cmake groff-base zsh fish etcd-server
              libvirglrenderer-dev libegl1 libegl-mesa0 libgl1 libgl1-mesa-dri"
fi

# All by one call: each reads dpkg's whole database.
# shellcheck disable=SC2086 # a list
there=$(dpkg-query -W -f '${db:Status-Abbrev} ${Package}\n' $packages pkgconf 2>/dev/null |
    sed -n 's/^ii *\([^ ]*\).*/\1/p' | tr '\n' ' ')
# pkgconf provides pkg-config in Debian 12 and later
case " $there" in *" pkgconf "*) there="$there pkg-config " ;; esac
missing=
for p in $packages; do
    case " $there" in *" $p "*) ;; *) missing="$missing $p" ;; esac
done
[ -n "$missing" ] || exit 0

if [ "$(id -u)" != 0 ]; then
    echo "missing packages; as root: apt-get install -y --no-install-recommends$missing"
    exit 2
fi
export DEBIAN_FRONTEND=noninteractive
echo "installing:$missing"
# shellcheck disable=SC2086 # a list
if ! apt-get install -y -qq --no-install-recommends $missing; then
    apt-get update -qq
    apt-get install -y -qq --no-install-recommends $missing
fi
