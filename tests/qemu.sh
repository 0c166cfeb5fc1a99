#!/bin/sh
# tests/qemu.sh: print the command, one word a line, that runs a QEMU with a vfio-user client.
# That is the machine's own QEMU when it is 10.1 or newer, else Debian's 11.1 unpacked under
# build/qemu (38 MB are fetched once; nothing is installed, root is not needed).  Exit status 1 and
# a reason on standard error when neither can be had.
#
#     mapfile -t qemu < <(tests/qemu.sh) && "${qemu[@]}" -version
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
    "$@" -device help 2>/dev/null | grep -q '"vfio-user-pci"'
}

print() {
    printf '%s\n' "$@"
    exit 0
}

if [ -n "${DXPU_QEMU:-}" ]; then
    recent "$DXPU_QEMU" || fail "DXPU_QEMU=$DXPU_QEMU is older than 10.1 or has no vfio-user-pci"
    print "$DXPU_QEMU"
fi
own=$(command -v qemu-system-x86_64 || true)
if [ -n "$own" ] && recent "$own"; then
    print "$own"
fi

top=$(cd "$(dirname "$0")/.." && pwd)
dir=${DXPU_QEMU_DIR:-$top/build/qemu}
case $dir in
/*) ;;
*) dir=$PWD/$dir ;;
esac
[ "$(uname -m)" = x86_64 ] || fail "the copy that can be fetched is for x86_64 only"
root=$dir/root
lib=$root/usr/lib/x86_64-linux-gnu

# The loader is called by name, since the copy brings its own, newer C library.
set -- "$lib/ld-linux-x86-64.so.2" --library-path "$lib" "$root/usr/bin/qemu-system-x86_64" \
    -L "$root/usr/share/qemu" -L "$root/usr/share/seabios"
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

# The mirror that the machine uses for its own suites serves the newer ones too.
mirror=$(
    {
        sed -n 's/^URIs: *//p' /etc/apt/sources.list.d/*.sources
        sed -n 's/^deb  *\(\[[^]]*\]  *\)\{0,1\}\([^ ]*\) .*/\2/p' \
            /etc/apt/sources.list /etc/apt/sources.list.d/*.list
    } 2>/dev/null | tr ' ' '\n' | grep -E '/debian/?$' | head -n 1
) || true
[ -n "$mirror" ] || fail "no Debian mirror in /etc/apt; install QEMU 10.1 or newer"
keyring=/usr/share/keyrings/debian-archive-keyring.gpg
[ -r $keyring ] || fail "no $keyring to check signatures with; install debian-archive-keyring"

apt=$dir/apt
rm -rf "$apt" "$root.new" "$dir/ready"
mkdir -p "$apt/lists/partial" "$apt/cache/archives/partial" "$apt/etc"
: >"$apt/status"
for suite in trixie trixie-updates trixie-backports; do
    echo "deb [signed-by=$keyring] $mirror $suite main"
done >"$apt/sources.list"
# The machine's own settings (a proxy, for instance) are read first; these then replace the places.
# Without the sandbox user apt may write here whoever runs it.
cat >"$apt/conf" <<END
Dir::State "$apt";
Dir::State::lists "$apt/lists";
Dir::State::status "$apt/status";
Dir::State::extended_states "$apt/extended_states";
Dir::Cache "$apt/cache";
Dir::Cache::archives "$apt/cache/archives";
Dir::Log "$apt";
Dir::Etc::sourcelist "$apt/sources.list";
Dir::Etc::sourceparts "$apt/etc";
Dir::Etc::preferences "$apt/etc/preferences";
Dir::Etc::preferencesparts "$apt/etc";
Dir::Etc::trusted "$apt/etc/trusted.gpg";
Dir::Etc::trustedparts "$apt/etc";
APT::Architecture "amd64";
APT::Architectures "amd64";
APT::Install-Recommends "false";
APT::Install-Suggests "false";
APT::Sandbox::User "";
APT::Get::AllowUnauthenticated "false";
Acquire::AllowInsecureRepositories "false";
Acquire::Languages "none";
Acquire::Retries "3";
Acquire::http::Timeout "30";
Acquire::https::Timeout "30";
APT::Update::Error-Mode "any";
Debug::NoLocking "true";
DPkg::Post-Invoke {};
APT::Update::Post-Invoke {};
APT::Update::Post-Invoke-Success {};
END
private() {
    # the lists of hooks cannot be emptied by a file that is merely read later
    sed 's/^\([A-Za-z:-]*Invoke[A-Za-z-]*\) {};$/#clear \1;/' "$apt/conf" >"$apt/apt.conf"
    APT_CONFIG=$apt/apt.conf apt-get -qq "$@" >"$apt/log" 2>&1 9>&- ||
        fail "apt-get $1 failed: $(tail -n 3 "$apt/log" | tr '\n' ' ')"
}
private update
private install -y --download-only -t trixie-backports qemu-system-x86 seabios ipxe-qemu
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
