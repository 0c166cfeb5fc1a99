# firmware.mk: images without an operating system, one directory of build/firmware a board.
# Included by the Makefile at the top; README.md beside this file says how to run them.
RISCV = riscv64-unknown-elf-
FW_BOARDS := mps2-an385 riscv-virt
FW_IMAGES := $(foreach b,$(FW_BOARDS),$(patsubst %,build/firmware/$b/%.elf,box measure))
FW_CC_mps2-an385 = $(ARM)gcc -mcpu=cortex-m3 -mthumb
FW_CC_riscv-virt = $(RISCV)gcc -misa-spec=2.2 -march=rv64imac -mabi=lp64 -mcmodel=medany
FW_BINDINGS := acceptor bytes firmware guard portable secure
# A call graph and the stack of each function beside each object: tests/firmware/footprint.py adds them up.
FW_FLAGS = -std=c11 -Os -g $(WARN) -ffreestanding -ffunction-sections -fdata-sections \
  -fno-tree-loop-distribute-patterns -fcallgraph-info=su -MMD -MP \
  -DDXPU_CONFIG_HEADER='"dxpu_options.h"' -Iexamples/firmware/libc -iquote build/include \
  -iquote examples/firmware -iquote examples/common/base -iquote examples/devices \
  $(FW_BINDINGS:%=-iquote bindings/%)
FW_DEVICE := $(patsubst %,examples/devices/%.o,memory pci)
FW_PARTS := $(patsubst %,examples/firmware/%.o,dxpu runtime) \
  $(patsubst %.c,%.o,$(wildcard $(FW_BINDINGS:%=bindings/%/*.c)))

# $(call firmware,BOARD)
define firmware
build/firmware/$1/bindings/portable/%.o: FW_FLAGS += -O2 # X25519 takes long enough
build/firmware/$1/%.o: export CCACHE_DISABLE = 1 # it loses the call graph
build/firmware/$1/%.o: %.c examples/firmware/firmware.mk | build/include/dxpu.h
	$$(call say,CC,$$<)$$(FW_CC_$1) $$(FW_FLAGS) -iquote examples/firmware/boards/$1 -c -o $$@ $$<
build/firmware/$1/box.elf: $(patsubst %,build/firmware/$1/%,$(FW_DEVICE) \
  $(patsubst %,examples/firmware/%.o,main pages))
build/firmware/$1/measure.elf: build/firmware/$1/examples/firmware/measure.o
build/firmware/$1/box.elf build/firmware/$1/measure.elf: examples/firmware/boards/$1/link.ld \
  $(patsubst %,build/firmware/$1/%,$(FW_PARTS) examples/firmware/boards/$1/board.o)
	$$(call say,LD,$$@)$$(FW_CC_$1) -nostdlib -Wl,--gc-sections -Wl,--fatal-warnings \
	  -T $$< -o $$@ $$(filter %.o,$$^) -lgcc
endef
$(foreach b,$(FW_BOARDS),$(eval $(call firmware,$b)))
firmware: $(FW_IMAGES)
