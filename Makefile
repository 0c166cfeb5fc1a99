# dxpu: build, test, install.  `make help` lists the targets.  GNU make 4.3, no recursion.
CC      = cc
WARN    = -Wall -Wextra -Wpedantic -Wconversion -Wshadow -Wundef -Wvla -Wstrict-prototypes \
          -Wmissing-prototypes -Wwrite-strings -Wformat=2 -Werror
CFLAGS  = -O2 -g $(WARN)
PREFIX  = /usr/local
MINUTES = 1
JOBS    = 1
PYTHON  = python3
ARM     = arm-none-eabi-
VERSION := $(shell sed -n 's/.*DXPU_VERSION  *"\(.*\)".*/\1/p' dxpu.h)

# These targets install the Debian packages they need as root, before anything is built.
NEED := $(firstword $(foreach n,cross check plots demo bench asan cov firmware fuzz prove ship \
  size soak,$(if $(filter $n%,$(MAKECMDGOALS)),$n)))
ifneq ($(if $(NEED),$(shell tests/packages.sh $(NEED) </dev/null >&2 || echo missing)),)
$(error packages are missing, see above)
endif

# Short lines: $(call say,CC,FILE) in front of a command; `make V=1` prints the commands instead.
say = $(if $(V)$(findstring s,$(firstword -$(MAKEFLAGS))),,@printf '  %-3s %s\n' $1 $2;)
BASE = -std=c11 -I. $(patsubst %,-I%,$(wildcard bindings/* examples/proxy)) -MMD -MP -pthread \
       $(XDP) $(SECCOMP)
DEFLATE := $(shell pkg-config --exists libdeflate 2>/dev/null && echo -DDXPU_ZLIB_USE_LIBDEFLATE=1)
XDP := $(shell pkg-config --exists libxdp libbpf 2>/dev/null && echo -DDXPU_AF_XDP=1)
SECCOMP := $(shell pkg-config --exists libseccomp 2>/dev/null && echo -DDXPU_SECCOMP=1)
LIBS = -Wl,--as-needed -levent -lpcap -ljansson -lsqlite3 -lcurl -lsodium -lpng -lz -lm \
       $(if $(DEFLATE),-ldeflate) $(if $(XDP),-lxdp -lbpf) $(if $(SECCOMP),-lseccomp)
# parts.a: the bindings but dxpu.h with bindings/zlib (libdxpu.a), and examples/proxy.
PARTS_SRC := $(wildcard bindings/*/*.c examples/proxy/*.c)
SRC_dxpu-host     := $(wildcard examples/host_proxy/*.c examples/host_proxy/*/*.c)
SRC_dxpu-box      := $(wildcard examples/box_proxy/*.c examples/box_proxy/*/*.c)
SRC_dxpu          := $(wildcard examples/cli/*.c examples/perf_model/*.c)
SRC_dxpu-manager  := $(wildcard examples/manager/*.c)
$(foreach p,relay pingpong,$(eval SRC_dxpu-$p := examples/demo/$p.c))
SRC_dxpu-direct   := examples/demo/direct.c $(wildcard examples/box_proxy/devices/*.c) \
  $(patsubst %,examples/host_proxy/%.c,guest slot vmd vswitch probe msi grants queue retry)
INSTALLED := dxpu dxpu-host dxpu-box dxpu-manager
PROGRAMS := $(INSTALLED) dxpu-relay dxpu-pingpong dxpu-direct
C_TESTS  := $(sort $(wildcard tests/unit_*.c tests/api_*.c tests/prop_*.c tests/sim_*.c))
BENCHES  := $(sort $(wildcard tests/bench/bench_*.c))
SCRIPTS  := $(sort $(wildcard tests/build/*.py tests/cli_*.py tests/reader/test_*.py \
              tests/net_*.py tests/net_*.sh tests/footprint.py)) \
              $(patsubst %,tests/%.py,cov cross ct mutate prove toc spec run_test fuzz_replay)
FUZZERS  := $(filter-out fuzz/fuzz_main.c,$(wildcard fuzz/fuzz_*.c))
TARGETS   = $(FUZZERS:fuzz/fuzz_%.c=%)
# The tests of dxpu.h itself; the second set of options is about the CRC alone.
COV_TESTS = $(addprefix unit_,channel flow paths route tlp wire) $(addprefix api_,crc frames names \
            vectors) $(addprefix sim_,channel explore life recovery) prop_tlp
COV_ALL   = $(COV_TESTS:%=build/cov1/tests/%) $(patsubst %,build/cov8/tests/%,api_crc unit_wire)
SAN_ALL   = $(patsubst %,build/san/%,$(C_TESTS:%.c=%) $(FUZZERS:fuzz/%.c=replay_%) $(PROGRAMS))

## all        programs, libdxpu.a and libdxpu-inject.so, into build/ (the default)
all: build/libdxpu.a build/libdxpu-inject.so $(PROGRAMS:%=build/%)

# $(call variant,DIR,FLAGS): every object, both libraries and the C tests, compiled into DIR.
define variant
$1/%.o: %.c
	@mkdir -p $$(@D)
	$$(call say,CC,$$<)$$(CC) $$(BASE) $$(CFLAGS) $2 \
	  $$(if $$(filter examples/% tests/bench/%,$$<),$$(DEFLATE)) -c -o $$@ $$<
$1/dxpu.o: dxpu.h bindings/zlib/dxpu_zlib.h
	@mkdir -p $$(@D)
	$$(call say,CC,$$<)$$(CC) $$(BASE) $$(CFLAGS) $2 $$(DEFLATE) \
	  -include bindings/zlib/dxpu_zlib.h -DDXPU_IMPLEMENTATION -x c -c -o $$@ $$<
$1/examples/manager/api_openapi.o: spec/openapi.yaml
$1/libdxpu.a: $1/dxpu.o
$1/parts.a: $$(PARTS_SRC:%.c=$1/%.o)
$1/libdxpu.a $1/parts.a:
	@mkdir -p $$(@D) && rm -f $$@
	$$(call say,AR,$$@)$$(AR) rcs $$@ $$^
$$(patsubst %.c,$1/%,$$(C_TESTS) $$(BENCHES)): $1/%: $1/%.o $1/parts.a $1/libdxpu.a
	$$(call say,LD,$$@)$$(CC) $$(CFLAGS) $2 -pthread -o $$@ $$^ $$(LIBS) -lcmocka
$1/replay_%: $1/fuzz/%.o $1/fuzz/fuzz_main.o $1/parts.a $1/libdxpu.a
	$$(call say,LD,$$@)$$(CC) $$(CFLAGS) $2 -pthread -o $$@ $$^ $$(LIBS)
endef
SAN   = -O1 -fsanitize=address,undefined -fno-sanitize-recover=undefined -fno-omit-frame-pointer \
        -DDXPU_CONFIG_HEADER='"tests/asserts.h"'
COV   = -O0 --coverage -fprofile-abs-path -DNDEBUG # asserts off: nothing can take their branch
HARD  = -fPIE -fstack-protector-strong -fstack-clash-protection -U_FORTIFY_SOURCE \
        -D_FORTIFY_SOURCE=2
$(eval $(call variant,build,$(HARD)))$(eval $(call variant,build/san,$(SAN)))
$(foreach n,1 8,$(eval $(call variant,build/cov$n,$(COV) -DDXPU_CRC_TABLES=$n)))
$(foreach d,build build/san,$(foreach p,$(PROGRAMS),$(eval \
  $d/$p: $$(SRC_$p:%.c=$d/%.o) $d/parts.a $d/libdxpu.a)))
$(PROGRAMS:%=build/%) $(PROGRAMS:%=build/san/%):
	$(call say,LD,$@)$(CC) $(CFLAGS) $(if $(findstring san,$@),$(SAN)) -pthread -o $@ $^ $(LIBS) \
	  $(if $(findstring san,$@),,-pie -Wl,-z,relro,-z,now,-z,noexecstack)
build/libdxpu-inject.so: $(wildcard examples/inject/*.[ch] bindings/model/*.h) | build/libdxpu.a
	$(call say,LD,$@)$(CC) $(CFLAGS) -I. -Ibindings/model -fPIC -shared -pthread -o $@ \
	  $(filter %.c,$^) -lm

## demo       a capture, then a guest's disk, through the proxies and a bad network; figures
demo: all
	$(PYTHON) examples/demo/demo.py

## bench      what a TLP costs, beside its floors: a table, and build/bench.json
bench: all $(BENCHES:%.c=build/%)
	$(PYTHON) tests/bench/bench.py --json build/bench.json

## plots      the README's plots, by gnuplot; that of the bench from build/bench.json
plots: all build/tests/sim_pool
	tests/bench/pool_plot.py tests/data/pool.svg
	tests/bench/model_plot.py tests/data
	$(if $(wildcard build/bench.json),tests/bench/bench_plot.py build/bench.json tests/data/bench.svg)

## check      all tests; installs missing Debian packages when run as root
check: all firmware $(SAN_ALL) $(COV_ALL) $(BENCHES:%.c=build/%)
	$(PYTHON) tests/run.py --jobs 2 $(C_TESTS:%.c=build/san/%) $(SCRIPTS)

## check-long check with many more simulation seeds, hot-plug cycles, a large pool, a cut of 60 s
check-long: all firmware $(SAN_ALL) $(COV_ALL) $(C_TESTS:%.c=build/%) $(BENCHES:%.c=build/%)
	DXPU_SEEDS=1000000 $(PYTHON) tests/run.py --timeout 14400 build/tests/sim_channel
	DXPU_SEEDS=20000 DXPU_DEPTH=8 DXPU_ROUNDS=2000000 DXPU_SLOTS=100000 DXPU_STEPS=10000 $(PYTHON) \
	  tests/run.py --jobs 2 --timeout 3600 $(C_TESTS:%.c=build/%) $(C_TESTS:%.c=build/san/%) $(SCRIPTS)

## asan       C tests only, with address and undefined-behaviour sanitizers
asan: $(C_TESTS:%.c=build/san/%)
	$(PYTHON) tests/run.py --jobs 2 $^

## cov        line and branch coverage of dxpu.h, merged over the option sets; all of it, or fail
cov: $(COV_ALL)
	$(PYTHON) tests/cov.py

## prove      every proof of dxpu.h by CBMC, each with a control that must fail
## cross      tests of dxpu.h on other machines (qemu-user), by other compilers; analysers
prove cross:
	$(PYTHON) tests/$@.py --all
## soak       proxies and manager, then a guest, under trouble for MINUTES=n (default 60) each
soak: MINUTES = 60
soak: all
	set -e; for t in net_soak net_soak_guest; do \
	  DXPU_SOAK_MINUTES=$(MINUTES) $(PYTHON) tests/$$t.py; done

## fuzz       libFuzzer targets: MINUTES=n each (1), JOBS=n at once (1); TARGETS='http tlp'; clang
fuzz: $(TARGETS:%=build/fuzz_%)
	$(PYTHON) fuzz/run.py --minutes $(MINUTES) --jobs $(JOBS) $(TARGETS)
build/fuzz_%: fuzz/fuzz_%.c build/parts.a build/libdxpu.a
	$(call say,CC,$<)clang $(BASE) -O1 -g $(WARN) -fsanitize=fuzzer,address,undefined \
	  -DDXPU_CONFIG_HEADER='"tests/asserts.h"' -o $@ $< $(filter %.a,$^) $(LIBS)

## fmt        format the C files
## toc        CONTENTS of dxpu.h against its sections
## spec       rule tags of spec/, code and tests agree
fmt: ; git ls-files -z '*.c' '*.h' '*.cc' | xargs -0 clang-format -i
toc spec: ; $(PYTHON) tests/$@.py --strict

## firmware   images of a box without an operating system: examples/firmware
include examples/firmware/firmware.mk
## size       text size on a Cortex-M4, nothing undefined but mem*
## ship       dxpu.h alone in an empty folder: README program as C99, C++11, freestanding, static
size ship:
	ARM=$(ARM) $(PYTHON) tests/build/build.py $@

## install    header, dxpu.pc, programs, man pages, systemd units under DESTDIR and PREFIX
D = $(DESTDIR)$(PREFIX)
install: all
	install -d $D/lib/pkgconfig && install -m 755 build/libdxpu-inject.so $D/lib
	printf '%s\n' 'Name: dxpu' 'Description: PCIe over datagrams, single-header C library' \
	  'Version: $(VERSION)' 'Cflags: -I$(PREFIX)/include' > $D/lib/pkgconfig/dxpu.pc
	install -Dm 644 -t $D/include dxpu.h
	install -Dm 755 -t $D/bin $(INSTALLED:%=build/%)
	install -Dm 644 -t $D/share/man/man1 $(wildcard examples/*/*.1)
	install -Dm 644 -t $D/share/doc/dxpu/examples $(wildcard examples/*/*.conf)
	install -Dm 644 -t $D/lib/systemd/system $(wildcard examples/*/*.service)
	sed -i 's,/usr/local/bin,$(PREFIX)/bin,' $D/lib/systemd/system/dxpu-*.service

## clean      remove build/
clean: ; rm -rf build
## help       this list
help: ; @sed -n 's/^## //p' Makefile
.PHONY: all demo bench plots check check-long asan cov prove cross fuzz fmt toc spec size ship
.PHONY: install clean help firmware soak
.SECONDARY .DELETE_ON_ERROR:
-include $(shell find build -name '*.d' -type f 2>/dev/null)
