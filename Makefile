# dxpu: build, test, install.  `make help` lists the targets.  GNU make 4.3, no recursion.
CC      = cc
WARN    = -Wall -Wextra -Wpedantic -Wconversion -Wshadow -Wundef -Wvla -Wstrict-prototypes \
          -Wmissing-prototypes -Wwrite-strings -Wformat=2 -Werror
CFLAGS  = -O2 -g $(WARN)
PREFIX  = /usr/local
MINUTES = 1
PYTHON  = python3
ARM     = arm-none-eabi-
MAKEFLAGS += $(if $(filter clean,$(MAKECMDGOALS)),,-j$(shell nproc)) # unless -j says otherwise
VERSION := $(shell sed -n 's/.*DXPU_VERSION  *"\(.*\)".*/\1/p' dxpu.h)

# These targets install the Debian packages they need as root, before anything is built; with
# `make -n` none does.
flags := $(filter-out --%,$(firstword -$(MAKEFLAGS)))
NEED := $(if $(findstring n,$(flags)),,$(firstword $(foreach n,cross check plots demo-ha demo \
  bench asan cov firmware fuzz prove ship size soak,$(if $(filter $n%,$(MAKECMDGOALS)),$n))))
ifneq ($(if $(NEED),$(shell tests/packages.sh $(NEED) </dev/null >&2 || echo missing)),)
$(error packages are missing, see above)
endif

# $(call say,CC,FILE) in front of a command makes the directory of $@ and prints a short line; with
# V=1 it prints the command instead.  Neither needs a shell.
into = $(if $(findstring n,$(flags))$(filter $1,$(made)),,$(eval made += $1)$(shell mkdir -p $1))
say = $(call into,$(@D))$(if $(V)$(findstring s,$(flags)),,@$(info $()  $1 $2))
has = $(shell pkg-config --exists $2 2>/dev/null && echo $1)
DEFLATE := $(call has,-DDXPU_ZLIB_USE_LIBDEFLATE=1,libdeflate)
XDP := $(call has,-DDXPU_AF_XDP=1,libxdp libbpf)
SECCOMP := $(call has,-DDXPU_SECCOMP=1,libseccomp)
VIRGL := $(call has,-DDXPU_VIRGL=1,virglrenderer)
BASE = -std=c11 -MMD -MP -pthread $(XDP) $(SECCOMP) $(VIRGL) $(DEFLATE)

# A room is a directory with a room.mk, which names the rooms whose headers its files may include
# (uses/ROOM; see/ROOM: and does not call), its libraries (libs/ROOM), and objects that all of its
# tests share (with/ROOM).  No other headers are found, nothing else is linked.
ROOMS := $(patsubst %/room.mk,%,$(wildcard $(addsuffix /room.mk,*/* examples/common/* fuzz)))
include $(ROOMS:%=%/room.mk)
src  = $(wildcard $1/*.c $1/*/*.c)
dirs = $(sort $(patsubst %/,%,$(dir $(wildcard $1/*.[ch] $1/*/*.[ch]))))
inc  = $(addprefix -iquote ,build/include $(foreach r,$1 $(uses/$1) $(see/$1),$(call dirs,$r)) \
         $(if $(filter tests/% fuzz,$1),$(call dirs,tests/support)))
deep = $(sort $(foreach u,$(uses/$1),$u $(call deep,$u)))
libs = $(sort $(foreach r,$1 $(call deep,$1) bindings/zlib,$(libs/$r)))
# What a program of room $2 in build$1 is linked with beside its own.
archives = $(foreach r,$(call deep,$2),$(if $(call src,$r),build$1/$r.a)) build$1/libdxpu.a

ROOM_dxpu-host    := examples/host
ROOM_dxpu-box     := examples/box
ROOM_dxpu         := examples/cli
ROOM_dxpu-manager := examples/manager
ROOM_dxpu-device  := examples/device
ROOM_dxpu-render  := examples/render
INSTALLED := dxpu dxpu-host dxpu-box dxpu-manager dxpu-device dxpu-render
DEMO      := relay pingpong direct
PROGRAMS  := $(INSTALLED) $(DEMO:%=dxpu-%)
C_TESTS   := $(sort $(wildcard $(patsubst %,tests/*/%_*.c,unit api prop sim)))
BENCHES   := $(sort $(wildcard tests/bench/bench_*.c))
SCRIPTS   := $(sort $(wildcard $(patsubst %,tests/*/%,cli_*.py net_*.py) \
               tests/core/reader/test_*.py tests/firmware/footprint.py)) \
             $(patsubst %,tests/build/%.py,build make install dist complete tree layers words \
               bench_check cov cross toc spec run_test fuzz_replay) \
             $(patsubst %,tests/proof/%.py,ct mutate prove)
FUZZERS   := $(filter-out fuzz/fuzz_main.c,$(wildcard fuzz/fuzz_*.c))
TARGETS    = $(FUZZERS:fuzz/fuzz_%.c=%)
# Those of dxpu.h that take each branch of it; the second set of options is about the CRC alone.
COV_TESTS = $(addprefix core/unit_,channel flow frames paths route tlp wire) core/prop_tlp \
            $(addprefix core/api_,contract crc names vectors) sim/sim_channel
COV_ALL   = $(COV_TESTS:%=build/cov1/tests/%) build/cov8/tests/core/api_crc \
            build/cov8/tests/core/unit_wire
SAN_ALL   = $(patsubst %,build/san/%,$(C_TESTS:%.c=%) $(FUZZERS:fuzz/%.c=replay_%) $(PROGRAMS))
# Rooms without a program are linked for the sake of what is missing.
LINKED   := $(foreach r,$(filter-out tests/% fuzz examples/demo examples/inject \
              $(foreach p,$(INSTALLED),$(ROOM_$p)),$(ROOMS)),$(if $(call src,$r),build/$r.linked))

## all        programs, libdxpu.a and libdxpu-inject.so, into build/ (the default)
all: build/libdxpu.a build/libdxpu-inject.so $(PROGRAMS:%=build/%) $(LINKED)

build/include/dxpu.h:
	@mkdir -p $(@D) && ln -sf ../../dxpu.h $@

# A variant is build/ or a directory of it, with a compiler and flags of its own.
SAN = -g1 -Og -fsanitize=address,undefined -fno-sanitize-recover=undefined -fno-omit-frame-pointer \
      -iquote tests/support -DDXPU_CONFIG_HEADER='"asserts.h"'
COV = -O0 --coverage -fprofile-abs-path -DNDEBUG # asserts off: nothing can take their branch
VARIANTS := /san /cov1 /cov8 /fuzz /pic
CC/fuzz = clang
FLAGS = -fPIE -fstack-protector-strong -fstack-clash-protection -U_FORTIFY_SOURCE \
        -D_FORTIFY_SOURCE=2
FLAGS/san = $(SAN) $(if $(findstring clang,$(CC)),,-static-libasan -static-libubsan) # start sooner
FLAGS/cov1 = $(COV) -DDXPU_CRC_TABLES=1
FLAGS/cov8 = $(COV) -DDXPU_CRC_TABLES=8
FLAGS/fuzz = $(SAN) -fsanitize=fuzzer-no-link
compile = $(or $(CC$1),$(CC)) $(BASE) $(CFLAGS) $(FLAGS$1)
SOON = -no-pie $(if $(shell command -v ld.gold),-fuse-ld=gold) # linked, and started, sooner
PLAIN_AR = $(AR) $(if $(filter ar-,$(AR)-$(findstring -flto,$(CC)$(CFLAGS))),--target=default)
# $(call link,VARIANT,ROOM)
link = $(call say,LD,$@)$(or $(CC$1),$(CC)) $(CFLAGS) $(FLAGS$1) -pthread -o $@ $(if $1,$(SOON),\
  -pie -z relro -z now -z noexecstack) \
  $(filter %.o,$^) -Wl,--as-needed -Wl,--start-group $(filter %.a,$^) -Wl,--end-group \
  $(call libs,$2)
# $(call variant,VARIANT): every object, archive, C test and program, in build$1
define variant
build$1/%.o: %.c | build/include/dxpu.h
	$$(call say,CC,$$<)$$(call compile,$1) $$(INC) -c -o $$@ $$<
build$1/dxpu.o: dxpu.h bindings/zlib/dxpu_zlib.h | build/include/dxpu.h
	$$(call say,CC,$$<)$$(call compile,$1) -iquote . -include bindings/zlib/dxpu_zlib.h \
	  -DDXPU_IMPLEMENTATION -include $$< -x c -c -o $$@ $$<
build$1/libdxpu.a: build$1/dxpu.o $(filter build/san/%,build$1/tests/support/leak_scan.o)
build$1/%.a:
	@rm -f $$@
	$$(call say,AR,$$@)$$(PLAIN_AR) rcs $$@ $$^
endef
# $(call room,VARIANT,ROOM)
define room
build$1/$2/%.o: INC = $(call inc,$2)
build$1/$2.a: $(patsubst %.c,build$1/%.o,$(call src,$2))
$(patsubst %.c,build$1/%,$(filter $2/%,$(C_TESTS) $(BENCHES))): %: \
  %.o $(with/$2:%=build$1/$2/%) $(call archives,$1,$2)
	$$(call link,$1,$2)
endef
# $(call program,VARIANT,ROOM,PROGRAM,OBJECT or archive with its main())
define program
build$1/$3: build$1/$4 $(call archives,$1,$2)
	$$(call link,$1,$2)
endef
$(foreach v,- $(VARIANTS),$(eval $(call variant,$(v:-=)))$(foreach r,$(ROOMS),$(eval \
  $(call room,$(v:-=),$r))))
$(foreach v,- /san,$(foreach p,$(INSTALLED),$(eval \
  $(call program,$(v:-=),$(ROOM_$p),$p,$(ROOM_$p).a)))$(foreach p,$(DEMO),$(eval \
  $(call program,$(v:-=),examples/demo,dxpu-$p,examples/demo/$p.o))))
$(foreach f,$(FUZZERS:fuzz/%.c=%),$(eval \
  $(call program,/san,fuzz,replay_$f,fuzz/$f.o build/san/fuzz/fuzz_main.o)))
build/%.linked: build/%.a
	@$(CC) -pthread -o $@ -Wl,--defsym=main=0 -Wl,--whole-archive $< -Wl,--no-whole-archive \
	  -Wl,--as-needed -Wl,--start-group $(filter-out $<,$^) -Wl,--end-group $(call libs,$*)
$(foreach r,$(LINKED:build/%.linked=%),$(eval build/$r.linked: $(call archives,,$r)))
$(foreach v,- $(VARIANTS),$(eval \
  build$(v:-=)/examples/manager/api/api_openapi.o: spec/openapi.yaml))
# Tests that start it: the one without sanitizers, which compiles shaders.
$(foreach v,build build/san,$v/tests/render/api_render $v/tests/devices/api_virtio_gpu_3d): \
  | build/dxpu-render
build/libdxpu-inject.so: $(wildcard examples/inject/*.[ch] bindings/model/*.h) | build/libdxpu.a
	$(call say,LD,$@)$(CC) $(CFLAGS) $(call inc,examples/inject) -fPIC -shared -pthread -o $@ \
	  $(filter %.c,$^) -lm

include bindings/install.mk

## demo       a capture, a pool, guests, lost boxes, a bad network, Mesa on lent GPUs; figures
## demo-ha    three managers over etcd: a storm of leases and of trouble, judged; two minutes
demo demo-ha: all
	$(PYTHON) $(if $(@:demo=),tests/manager/net_history.py --demo,examples/demo/demo.py)

## bench      what a TLP costs, beside its floors: a table, and build/bench.json
bench: all $(BENCHES:%.c=build/%)
	$(PYTHON) tests/bench/bench.py --json build/bench.json

## plots      the plots of spec/ and READMEs, by gnuplot; the bench's from build/bench.json
plots: all build/tests/manager/sim_pool
	tests/bench/pool_plot.py tests/data/pool.svg
	tests/bench/model_plot.py tests/data
	$(if $(wildcard build/bench.json),tests/bench/bench_plot.py build/bench.json tests/data)

# What takes long is run without sanitizers, and with them a part of it (tests/support/seeds.h).
LONG_SIMS := $(foreach s,bottleneck channel core explore failover model,$(filter \
               %/sim_$s,$(C_TESTS:%.c=build/%)))
## check      the tests, long ones in part; installs missing Debian packages when run as root
check: all firmware $(LIBRARIES) $(SAN_ALL) $(COV_ALL) $(LONG_SIMS) $(BENCHES:%.c=build/%)
	$(PYTHON) tests/run.py --jobs 2 --again $(LONG_SIMS) $(C_TESTS:%.c=build/san/%) \
	  $(filter-out %_guest_mesa.py %_guest_uplink.py %_guest_devices.py %_soak_guest.py,$(SCRIPTS))

## test       one test: make test T=unit_tlp [K=test_t9*], make test T=net_proxies [K=case]
TEST := $(filter %/$(T).c %/$(T).py,$(C_TESTS) $(SCRIPTS))
$(if $(filter test,$(MAKECMDGOALS)),$(if $(filter 1,$(words $(TEST))),,$(error T=$(T) names $(or \
  $(TEST),no test): give the name of one file of tests/ without its suffix)))
$(eval TEST_NEEDS := $(if $(filter %.py,$(TEST)),all $(shell sed -n 's/^# make: //p' $(TEST))))
test: $(if $(TEST:%.py=),$(TEST:%.c=build/san/%),$(TEST_NEEDS))
	$(PYTHON) tests/pick.py $(TEST:%.c=build/san/%) '$(K)'

## quick      the C tests of dxpu.h, without sanitizers, in a minute; R=box: those of tests/box
QUICK := $(filter-out tests/cli/sim_% %/sim_core.c,$(filter tests/$(or $R,core)/%,$(C_TESTS)))
quick: $(QUICK:%.c=build/%)
	$(PYTHON) tests/run.py --jobs 2 $(or $^,$(error R=$R is not a directory of tests/ with C tests))

## check-long check with many more simulation seeds, hot-plug cycles, a large pool, a cut of 60 s
check-long: all firmware $(LIBRARIES) $(SAN_ALL) $(COV_ALL) $(C_TESTS:%.c=build/%) \
  $(BENCHES:%.c=build/%)
	DXPU_SEEDS=1000000 $(PYTHON) tests/run.py --timeout 14400 build/tests/sim/sim_channel
	DXPU_WHOLE=1 DXPU_SEEDS=20000 DXPU_DEPTH=8 DXPU_ROUNDS=2000000 DXPU_SLOTS=100000 \
	  DXPU_STEPS=10000 $(PYTHON) tests/run.py --long --jobs 2 --timeout 3600 $(C_TESTS:%.c=build/%) \
	  $(C_TESTS:%.c=build/san/%) $(SCRIPTS)

## asan       C tests only, with address and undefined-behaviour sanitizers
asan: $(C_TESTS:%.c=build/san/%)
	$(PYTHON) tests/run.py --jobs 2 $^
## cov        line and branch coverage of dxpu.h, merged over the option sets; all of it, or fail
cov: $(COV_ALL)
	$(PYTHON) tests/build/cov.py

## prove      every proof of dxpu.h by CBMC, each with a control that must fail
## cross      tests of dxpu.h on other machines (qemu-user), by other compilers; analysers
prove cross:
	$(PYTHON) $(wildcard tests/*/$@.py) --all
## soak       proxies and manager, then a guest, under trouble for MINUTES=n (default 60) each
soak: MINUTES = 60
soak: all
	set -e; for t in net_soak net_soak_guest net_soak_guest_devices; do \
	  DXPU_SOAK_MINUTES=$(MINUTES) $(PYTHON) tests/*/$$t.py; done

## fuzz       libFuzzer targets: MINUTES=n each (1), JOBS=n at once (1); TARGETS='http tlp'; clang
fuzz: $(TARGETS:%=build/fuzz_%)
	$(PYTHON) fuzz/run.py --minutes $(MINUTES) --jobs $(or $(JOBS),1) $(TARGETS)
build/fuzz_%: build/fuzz/fuzz/fuzz_%.o $(call archives,/fuzz,fuzz)
	$(call link,/fuzz,fuzz) -fsanitize=fuzzer -fuse-ld=bfd # gold warns of each of asan's symbols

## fmt        format the C files
## toc        CONTENTS of dxpu.h against its sections
## spec       rule tags of spec/, code and tests agree
fmt: ; git ls-files -z '*.c' '*.h' '*.cc' | xargs -0 clang-format -i
toc spec: ; $(PYTHON) tests/build/$@.py --strict

## firmware   images of a box without an operating system: examples/firmware
include examples/firmware/firmware.mk
## size       text size on a Cortex-M4, nothing undefined but mem*
## ship       dxpu.h alone in an empty directory: README program as C99, C++11, freestanding, static
size ship:
	ARM=$(ARM) $(PYTHON) tests/build/build.py $@

## rooms      each room, the rooms that it may use, and what it is compiled and linked with
rooms:
	@$(foreach r,$(ROOMS),echo \
	  '$r|$(uses/$r)|$(call inc,$r)|$(call archives,,$r)|$(call libs,$r)';)
## clean      remove build/
clean: ; rm -rf build
## help       this list
help: ; @sed -n 's/^## //p' $(filter %Makefile %/install.mk,$(MAKEFILE_LIST))
.PHONY: all demo bench plots check check-long asan cov prove cross fuzz fmt toc spec size ship
.PHONY: clean demo-ha help firmware soak rooms test quick
.SECONDARY .DELETE_ON_ERROR:
-include $(shell find build -path build/guest -prune -o -path build/qemu -prune -o -name '*.d' \
           -type f -print 2>/dev/null)
