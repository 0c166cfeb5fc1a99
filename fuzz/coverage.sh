#!/bin/sh
# Lines and branches that the corpora reach: the seeds (seeds.py), and build/corpus
# where the fuzzers have
# run (SEEDS=only: without).  A table on standard output, a row for each target, of the files that
# it attacks; build/fuzz-coverage/TARGET.txt has all files, html/TARGET shows each line.
# Arguments: the names of the targets [all].  Package: llvm.
set -eu
cd "$(dirname "$0")/.."
if ! command -v llvm-profdata >/dev/null; then
    echo "coverage.sh: llvm-profdata is not here: install llvm" >&2
    exit 1
fi
out=build/fuzz-coverage
export CC=clang CFLAGS='-O1 -g -fprofile-instr-generate -fcoverage-mapping' OUT=$out
export LIB_FUZZING_ENGINE=fuzz/fuzz_main.c CONFIG= # assertions are no branches to reach
[ $# -gt 0 ] || set -- $(ls fuzz/fuzz_*.c | sed 's,fuzz/fuzz_\(.*\)\.c,\1,; /^main$/d')

# What it is there for; other files are used on the way.
attacked() {
    case $1 in
    answers) echo 'pool_[a-z]*.c' control_client.c control_command.c ;;
    audit | leases | options | plug) echo "$1.c" ;;
    control) echo dxpu_control.h ;;
    core) echo 'core(_[a-z]*)?.c policy.c' ;;
    crossing) echo keeper.c crossing.c slot.c bridge.c ;;
    device) echo dxpu_guard.c dxpu_windows.c ;;
    enroll) echo enroll_talk.c enroll_command.c dxpu_sodium_enroll.c ;;
    ethernet) echo dxpu_af_xdp_wire.c dxpu_firmware_wire.c ;;
    firmware) echo dxpu_firmware.c dxpu_firmware_wire.c ;;
    handshake) echo dxpu_noise.c dxpu_secure.c dxpu_seal.c ;;
    http) echo api_head.c api_requests.c ;;
    keyfiles) echo dxpu_sodium_key.c identity_file.c ;;
    link) echo manager_link.c ;;
    fabric) echo fabric.c sealing.c ;;
    nvme) echo 'nvme(_[a-z]*)?.c' function.c pci.c ;;
    inject) echo settings.c ;;
    pcap) echo dxpu_pcap.c ;;
    peers) echo keys.c ;;
    probe) echo probe.c enumerate.c ;;
    requests) echo requests.c control.c ;;
    shadow) echo shadow.c bars.c ;;
    state) echo state.c ;;
    store) echo core_load.c core_record.c ;;
    stream) echo dxpu_sodium_stream.c dxpu_noise.c ;;
    tlp_text) echo 'tlp_[a-z]*.c' ;;
    tokens) echo api_tokens.c ;;
    trace) echo trace.c ;;
    vfio_user) echo dxpu_vfio_user.c ;;
    vfio_user_client) echo dxpu_vfio_user_client.c dxpu_vfio_user_stream.c ;;
    virtio) echo 'virtio(_[a-z_]*)?.c' function.c ;;
    vswitch) echo dxpu_vswitch.h ;;
    wire) echo wire.c ;;
    *) echo dxpu.h ;;
    esac
}

echo '| target | files | lines | branches |'
echo '|---|---|---|---|'
fuzz/oss_fuzz.sh "$@" >/dev/null
for target; do
    seeds=$out/seeds/$target
    fuzz/seeds.py unpack "$out/seeds" "$target"
    if [ "${SEEDS:-}" != only ] && [ -d "build/corpus/$target" ]; then
        seeds="$seeds build/corpus/$target"
    fi
    LLVM_PROFILE_FILE=$out/$target.raw "$out/fuzz_$target" $seeds >/dev/null 2>&1
    llvm-profdata merge -o "$out/$target.profile" "$out/$target.raw"
    llvm-cov show --format=html --output-dir="$out/html/$target" \
        --instr-profile="$out/$target.profile" "$out/fuzz_$target" >/dev/null
    llvm-cov report --instr-profile="$out/$target.profile" "$out/fuzz_$target" \
        --ignore-filename-regex='/(fuzz|tests)/' >"$out/$target.txt"
    files=$(attacked "$target")
    awk -v target="$target" -v files="$files" '
        BEGIN { n = split(files, name, " ") }
        NF > 12 {
            for (i = 1; i <= n; i++)
                if ($1 ~ "(^|/)" name[i] "$") {
                    lines += $8; missed += $9; branches += $11; untaken += $12
                    break
                }
        }
        END {
            gsub(/\(_\[a-z_?\]\*\)\?/, "*", files); gsub(/\[a-z\]\*/, "*", files)
            printf "| `%s` | `%s` | %d %% of %d | %d %% of %d |\n", target, files,
                lines ? 100 * (lines - missed) / lines : 0, lines,
                branches ? 100 * (branches - untaken) / branches : 0, branches
        }' "$out/$target.txt"
done
