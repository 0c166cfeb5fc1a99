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
protocol="bindings/secure/dxpu_secure.c bindings/secure/dxpu_seal.c"
keys="$protocol bindings/secure/dxpu_noise.c bindings/sodium/dxpu_sodium.c"
keys="$keys bindings/sodium/dxpu_sodium_key.c"
sockets="$(echo bindings/libevent/*.c) examples/proxy/stats.c"
include=$(for d in bindings/* examples/proxy; do printf ' -I%s' "$d"; done)
mkdir -p "$OUT"
[ $# -gt 0 ] || set -- $(ls fuzz/fuzz_*.c | sed 's,fuzz/fuzz_\(.*\)\.c,\1,; /^main$/d')
for target; do
    parts= # besides the files that the target includes
    case $target in
    peers) parts=$(echo bindings/sodium/*.c bindings/secure/*.c) ;;
    firmware) parts=$(echo bindings/guard/*.c) ;;
    keyfiles | stream) parts=$protocol ;;
    core | store) parts=$keys ;;
    requests) parts=$sockets ;;
    link | wire) parts="$keys $sockets examples/proxy/requests.c" ;;
    fabric)
        parts=$(echo bindings/libevent/*.c bindings/pcap/*.c bindings/af_xdp/*.c)
        parts="$parts bindings/sodium/dxpu_sodium_key.c"
        for n in bypass recorder sandbox stats; do parts="$parts examples/proxy/$n.c"; done
        ;;
    answers)
        parts=$(echo bindings/libevent/*.c bindings/sodium/*.c bindings/secure/*.c)
        for n in keys requests secure_stream stats; do parts="$parts examples/proxy/$n.c"; done
        ;;
    enrol)
        parts="$(echo bindings/libevent/*.c) examples/proxy/keys.c $protocol"
        ;;
    esac
    $CC $CFLAGS -std=c11 -pthread -I. $include -o "$OUT/fuzz_$target" "fuzz/fuzz_$target.c" $parts \
        $LIB_FUZZING_ENGINE -Wl,--as-needed -levent -lpcap -ljansson -lcurl -lsodium -lsqlite3 \
        -lz -lm
    cp "fuzz/dict/$target.dict" "$OUT/fuzz_$target.dict"
    sed -n 's/.*libFuzzer: -\(max_len\)=\([0-9]*\).*/[libfuzzer]\n\1 = \2/p' \
        "fuzz/fuzz_$target.c" >"$OUT/fuzz_$target.options"
    if command -v zip >/dev/null; then
        zip -qj "$OUT/fuzz_${target}_seed_corpus.zip" "fuzz/corpus/$target"/*
    fi
    echo "$OUT/fuzz_$target"
done
