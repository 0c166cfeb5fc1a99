#!/bin/sh
# Build every fuzz target as OSS-Fuzz asks: $CC $CFLAGS $LIB_FUZZING_ENGINE, into $OUT, each with
# its seeds as TARGET_seed_corpus.zip (where there is a zip), dictionary and options.  Other engines
# likewise:
#   CC=afl-clang-fast OUT=build/afl fuzz/oss_fuzz.sh                     AFL++, persistent mode
#   LIB_FUZZING_ENGINE=fuzz/fuzz_main.c OUT=build/replay fuzz/oss_fuzz.sh    no engine: a replay
# Arguments: the names of the targets [all].  Packages: libevent, libpcap, jansson, libcurl,
# libsodium, sqlite3, zlib.
set -eu
cd "$(dirname "$0")/.."
: "${CC:=clang}" "${CFLAGS:=-O1 -g -fsanitize=address,undefined}" "${OUT:=build/oss-fuzz}"
: "${LIB_FUZZING_ENGINE:=-fsanitize=fuzzer}"
rooms="bindings examples/common examples/devices examples/host examples/box examples/manager
examples/cli examples/inject fuzz tests/support"
include=$(find $rooms -name '*.h' | sed 's,/[^/]*$,,; s/^/-iquote /' | sort -u)
# CONFIG= leaves the assertions out.
: "${CONFIG=-DDXPU_CONFIG_HEADER=\"asserts.h\"}"
flags="$CFLAGS -std=c11 -pthread -iquote . $include $CONFIG"
mkdir -p "$OUT"
[ $# -gt 0 ] || set -- $(ls fuzz/fuzz_*.c | sed 's,fuzz/fuzz_\(.*\)\.c,\1,; /^main$/d')
# All but the targets goes into an archive, except the firmware, what has a main() of its own, and
# libdxpu-inject, whose dlsym() is not to be the sanitizers'.
objects=$OUT/objects
mkdir -p "$objects"
find $rooms -name '*.c' ! -name main.c ! -path 'fuzz/*' ! -path 'tests/*' \
    ! -path 'examples/inject/*' | sed 'h; y,/,_,; x; G; s/\n/ /' | while read -r source name; do
    $CC $flags -c "$source" -o "$objects/$name.o" </dev/null
done
$CC $flags -include bindings/zlib/dxpu_zlib.h \
    -DDXPU_IMPLEMENTATION -include dxpu.h -x c -c dxpu.h -o "$objects/dxpu.o"
rm -f "$objects/all.a"
ar rcs "$objects/all.a" "$objects"/*.o
for target; do
    $CC $flags -o "$OUT/fuzz_$target" \
        "fuzz/fuzz_$target.c" $LIB_FUZZING_ENGINE "$objects/all.a" -Wl,--as-needed -levent -lpcap \
        -ljansson -lcurl -lsodium -lsqlite3 -lpng -lz -lm
    cp "fuzz/dict/$target.dict" "$OUT/fuzz_$target.dict"
    sed -n 's/.*libFuzzer: -\(max_len\)=\([0-9]*\).*/[libfuzzer]\n\1 = \2/p' \
        "fuzz/fuzz_$target.c" >"$OUT/fuzz_$target.options"
    if command -v zip >/dev/null; then
        fuzz/seeds.py unpack "$OUT/seeds" "$target"
        rm -f "$OUT/fuzz_${target}_seed_corpus.zip"
        zip -qj "$OUT/fuzz_${target}_seed_corpus.zip" "$OUT/seeds/$target"/*
    fi
    echo "$OUT/fuzz_$target"
done
