#!/bin/sh
# Keep what fuzzing has found: inputs of build/corpus/TARGET that reach edges which no seed of it
# reaches (seeds.py), the smallest first, become seeds: found-HASH in fuzz/corpus/TARGET.zip.  Those
# that are there stay.  What is larger than SIZE bytes (4096) is left out, and named when it alone
# reaches an edge; nothing is kept that would make all corpora larger than TOTAL bytes (4 MB).
#
#     fuzz/minimise.sh [TARGET...]      those that are built and have run; CORPUS=DIR: from there
set -eu
cd "$(dirname "$0")/.."
: "${SIZE:=4096}" "${TOTAL:=4000000}" "${CORPUS:=build/corpus}"
[ $# -gt 0 ] || set -- $(ls fuzz/fuzz_*.c | sed 's,fuzz/fuzz_\(.*\)\.c,\1,; /^main$/d')
for target; do
    if [ ! -x "build/fuzz_$target" ] || [ ! -d "$CORPUS/$target" ]; then
        echo "$target: not built, or has not run"
        continue
    fi
    merged=build/minimised/$target
    rm -rf "$merged"
    mkdir -p "$merged" "fuzz/corpus/$target"
    rm -rf "build/minimised/seeds/$target"
    fuzz/seeds.py unpack build/minimised/seeds
    cp "build/minimised/seeds/$target"/* "$merged" 2>/dev/null || :
    # edges alone: how often each is taken makes ten times the inputs, for replays that last
    "build/fuzz_$target" -merge=1 -use_counters=0 -max_len=1048576 "$merged" "$CORPUS/$target" \
        >"$merged.log" 2>&1 || { echo "$target: see $merged.log" >&2; exit 1; }
    kept=0
    for input in "$merged"/*; do
        name=${input##*/}
        [ ! -e "build/minimised/seeds/$target/$name" ] || continue
        bytes=$(wc -c <"$input")
        all=$(find build/minimised/seeds -type f -printf '%s\n' |
            awk '{ n += $1 } END { print n + 0 }')
        if [ "$bytes" -gt "$SIZE" ] || [ $((all + bytes)) -gt "$TOTAL" ]; then
            echo "$target: left out: $input, $bytes bytes"
            continue
        fi
        seed=found-$(echo "$name" | cut -c 1-12)
        cp "$input" "build/minimised/seeds/$target/$seed"
        mv "$input" "fuzz/corpus/$target/$seed"
        kept=$((kept + 1))
    done
    fuzz/seeds.py pack "$target"
    echo "$target: $kept new seeds, $(ls "build/minimised/seeds/$target" | wc -l) in all"
done
