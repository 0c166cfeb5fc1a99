#!/bin/sh
# Lines and branches of the parsers that the corpora reach: fuzz/corpus, and build/corpus where the
# fuzzers have run.  A table on standard output; build/fuzz-coverage/html shows each line.
# Arguments: the names of the targets [all].  Package: llvm.
set -eu
cd "$(dirname "$0")/.."
out=build/fuzz-coverage
export CC=clang CFLAGS='-O1 -g -fprofile-instr-generate -fcoverage-mapping' OUT=$out
export LIB_FUZZING_ENGINE=fuzz/fuzz_main.c
[ $# -gt 0 ] || set -- $(ls fuzz/fuzz_*.c | sed 's,fuzz/fuzz_\(.*\)\.c,\1,; /^main$/d')
fuzz/oss_fuzz.sh "$@" >/dev/null
for target; do
    seeds=fuzz/corpus/$target
    [ ! -d "build/corpus/$target" ] || seeds="$seeds build/corpus/$target"
    LLVM_PROFILE_FILE=$out/$target.raw "$out/fuzz_$target" $seeds >/dev/null 2>&1
    llvm-profdata merge -o "$out/$target.profile" "$out/$target.raw"
    llvm-cov show --format=html --output-dir="$out/html/$target" \
        --instr-profile="$out/$target.profile" "$out/fuzz_$target" >/dev/null
    printf '%s\n' "== $target"
    llvm-cov report --instr-profile="$out/$target.profile" "$out/fuzz_$target" \
        --ignore-filename-regex='/(fuzz|tests)/' | awk 'NR > 2 && NF > 9 {
            printf "%-56s lines %7s  branches %7s\n", $1, $10, $13 }'
done
