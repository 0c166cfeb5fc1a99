# tests/guest/apt.sh: an apt of our own, beside the machine's.  Sourced, not run.
# Packages of any suite are fetched, signatures checked, without root and without installing;
# an empty list of installed packages makes apt-get fetch everything that one depends on.
#
#     fail() { echo "$*" >&2; exit 1; }
#     apt_open DIR SUITE...             make the state in DIR and read the lists of the suites,
#                       of the packages; with apt_kinds="deb deb-src" of their sources, too
#     apt_private install -y --download-only PACKAGE...     into DIR/cache/archives
#     apt_programs FILE...              unpack these packages into $all, a new directory; programs
#                       and libraries (by their place in it) go to $dir/root, its lib
#
# Descriptor 9, a caller's lock, is not handed on.  SPDX-License-Identifier: MIT

# The mirror that the machine uses for its own suites serves the other ones too.
apt_mirror() {
    {
        sed -n 's/^URIs: *//p' /etc/apt/sources.list.d/*.sources
        sed -n 's/^deb  *\(\[[^]]*\]  *\)\{0,1\}\([^ ]*\) .*/\2/p' \
            /etc/apt/sources.list /etc/apt/sources.list.d/*.list
    } 2>/dev/null | tr ' ' '\n' | grep -E '/debian/?$' | head -n 1
}

apt_private() {
    APT_CONFIG=$apt_dir/apt.conf apt-get -qq "$@" >"$apt_dir/log" 2>&1 9>&- ||
        fail "apt-get $1 failed: $(tail -n 3 "$apt_dir/log" | tr '\n' ' ')"
}

apt_open() {
    apt_dir=$1
    shift
    for tool in apt-get dpkg dpkg-deb; do
        command -v $tool >/dev/null || fail "$tool is not here"
    done
    mirror=$(apt_mirror) || true
    [ -n "$mirror" ] || fail "no Debian mirror in /etc/apt"
    keyring=/usr/share/keyrings/debian-archive-keyring.gpg
    [ -r $keyring ] || fail "no $keyring to check signatures with; install debian-archive-keyring"
    rm -rf "$apt_dir"
    mkdir -p "$apt_dir/lists/partial" "$apt_dir/cache/archives/partial" "$apt_dir/etc" ||
        fail "cannot write to $apt_dir"
    : >"$apt_dir/status"
    for suite in "$@"; do
        for kind in ${apt_kinds:-deb}; do
            echo "$kind [signed-by=$keyring] $mirror $suite main"
        done
    done >"$apt_dir/sources.list"
    apt_settings >"$apt_dir/conf"
    # the lists of hooks cannot be emptied by a file that is merely read later
    sed 's/^\([A-Za-z:-]*Invoke[A-Za-z-]*\) {};$/#clear \1;/' "$apt_dir/conf" >"$apt_dir/apt.conf"
    apt_private update
}

# The machine's own settings (a proxy, for instance) are read first; these then replace the places.
# Without the sandbox user apt may write here whoever runs it.
apt_settings() {
    cat <<END
Dir::State "$apt_dir";
Dir::State::lists "$apt_dir/lists";
Dir::State::status "$apt_dir/status";
Dir::State::extended_states "$apt_dir/extended_states";
Dir::Cache "$apt_dir/cache";
Dir::Cache::archives "$apt_dir/cache/archives";
Dir::Log "$apt_dir";
Dir::Etc::sourcelist "$apt_dir/sources.list";
Dir::Etc::sourceparts "$apt_dir/etc";
Dir::Etc::preferences "$apt_dir/etc/preferences";
Dir::Etc::preferencesparts "$apt_dir/etc";
Dir::Etc::trusted "$apt_dir/etc/trusted.gpg";
Dir::Etc::trustedparts "$apt_dir/etc";
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
}

loader=lib64/ld-linux-x86-64.so.2

# keep FILE: copy a file of all/ to root/, at the same place, with the links that lead to it
keep() {
    mkdir -p "$dir/root${1%/*}"
    cp -L "$all$1" "$dir/root$1"
}

apt_programs() {
    # /lib and the like in /usr, whether the suite's packages know of that or not
    for folder in bin sbin lib lib64; do
        mkdir -p "$all/usr/$folder"
        ln -s "usr/$folder" "$all/$folder"
    done
    for package in "$apt_dir"/cache/archives/*.deb; do
        dpkg -x "$package" "$all" || fail "cannot unpack ${package##*/} (disk full?)"
    done
    path=$all/lib/x86_64-linux-gnu:$all/usr/lib/x86_64-linux-gnu
    path=$path:$all/usr/lib/x86_64-linux-gnu/ceph
    keep /$loader
    for program in "$@"; do
        [ -e "$all$program" ] || continue # another suite has it elsewhere
        keep "$program"
        [ "$program" != /bin/busybox ] || continue # static
        # the loader lists what it would load; every library goes to one directory
        "$all/$loader" --library-path "$path" --list "$all$program" 2>/dev/null |
            sed -n 's/.* => \([^ ]*\) (.*/\1/p'
    done | sort -u >"$dir/libraries"
    mkdir -p "$dir/root/lib"
    while read -r library; do
        case $library in
        "$all"/*) cp -L "$library" "$dir/root/lib/" ;;
        *) fail "$library is of this machine, not of the packages" ;;
        esac
    done <"$dir/libraries"
}
