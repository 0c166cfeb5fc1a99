/* nvme_config.c - PCI configuration space of the NVMe controller
   SPDX-License-Identifier: MIT

   A type 0 header (Base Spec 7.5.1), power management (7.5.2), MSI-X (7.7.2) and PCI Express
   (7.5.3) capabilities.  Dwords as numbers, byte 0 in bits 7:0. */
#include "nvme_model.h"

enum { /* dword indices */
       NCFG_ID = 0x00 / 4,
       NCFG_COMMAND = 0x04 / 4,
       NCFG_CLASS = 0x08 / 4,
       NCFG_CACHE_LINE = 0x0c / 4,
       NCFG_BAR0 = 0x10 / 4,
       NCFG_BAR1 = 0x14 / 4,
       NCFG_SUBSYSTEM = 0x2c / 4,
       NCFG_CAPABILITIES = 0x34 / 4,
       NCFG_INTERRUPT = 0x3c / 4,
       NCFG_PM = 0x40 / 4,
       NCFG_PM_CONTROL = NCFG_PM + 1,
       NCFG_MSIX = 0x50 / 4,
       NCFG_PCIE = 0x60 / 4,
       NCFG_DEVICE_CAP = NCFG_PCIE + 1,
       NCFG_DEVICE_CONTROL = NCFG_PCIE + 2,
       NCFG_LINK_CAP = NCFG_PCIE + 3,
       NCFG_LINK_CONTROL = NCFG_PCIE + 4,
       NCFG_DEVICE_CAP2 = NCFG_PCIE + 9,
       NCFG_DEVICE_CONTROL2 = NCFG_PCIE + 10,
       NCFG_LINK_CAP2 = NCFG_PCIE + 11,
       NCFG_LINK_CONTROL2 = NCFG_PCIE + 12
};

#define NCFG_COMMAND_MEMORY       0x0002u
#define NCFG_COMMAND_MASTER       0x0004u
#define NCFG_COMMAND_MASK         0x0546u /* memory, master, parity, SERR#, INTx disable */
#define NCFG_STATUS_W1C           0xf900u
#define NCFG_DEVICE_CONTROL_MASK  0x79ffu /* no auxiliary power, no phantom functions */
#define NCFG_DEVICE_CONTROL_FLR   0x8000u
#define NCFG_DEVICE_STATUS_W1C    0x000fu
#define NCFG_DEVICE_PENDING       0x0020u
#define NCFG_DEVICE_EXTENDED_TAGS 0x0100u
#define NCFG_MSIX_ENABLE          0x80000000u
#define NCFG_MSIX_MASK            0x40000000u
#define NCFG_TIMEOUT_DISABLE      0x10u

void nvme_config_reset(nvme *n)
{
    uint32_t *c = n->config;
    memset(c, 0, sizeof n->config);
    c[NCFG_ID] = (uint32_t)NVME_DEVICE << 16 | NVME_VENDOR;
    c[NCFG_COMMAND] = 0x0010u << 16; /* a capability list */
    c[NCFG_CLASS] = 0x01080201u;     /* mass storage, non-volatile memory, NVMe; revision 1 */
    c[NCFG_BAR0] = 0x00000004u;      /* 64-bit, reading may have effects */
    c[NCFG_SUBSYSTEM] = c[NCFG_ID];
    c[NCFG_CAPABILITIES] = NCFG_PM * 4;
    c[NCFG_PM] = 0x00030001u | (NCFG_MSIX * 4u) << 8; /* version 3, D0 and D3 */
    c[NCFG_PM_CONTROL] = 0x00000008u;                 /* registers outlive D3hot */
    c[NCFG_MSIX] = 0x00000011u | (NCFG_PCIE * 4u) << 8 | (NVME_VECTORS - 1u) << 16;
    c[NCFG_MSIX + 1] = NVME_TABLE; /* in BAR 0 */
    c[NCFG_MSIX + 2] = NVME_PBA;
    c[NCFG_PCIE] = 0x00020010u;                     /* last, version 2, endpoint */
    c[NCFG_DEVICE_CAP] = 0x10008020u | n->mps_code; /* FLR, role-based errors, 8-bit tags */
    c[NCFG_DEVICE_CONTROL] = 0x2810u; /* read requests of 512 bytes, No Snoop, Relaxed Ordering */
    c[NCFG_LINK_CAP] = 0x00000043u;   /* 8 GT/s, 4 lanes */
    c[NCFG_LINK_CONTROL] = 0x0043u << 16;
    c[NCFG_DEVICE_CAP2] = 0x0000001fu;   /* completion timeout: all ranges, can be disabled */
    c[NCFG_LINK_CAP2] = 0x0000000eu;     /* 2.5, 5 and 8 GT/s */
    c[NCFG_LINK_CONTROL2] = 0x00000003u; /* target: 8 GT/s */
}

/* Bits that software may change. */
static uint32_t config_writable(unsigned dw)
{
    switch (dw) {
    case NCFG_COMMAND:
        return NCFG_COMMAND_MASK;
    case NCFG_CACHE_LINE:
    case NCFG_INTERRUPT:
        return 0x000000ffu;
    case NCFG_BAR0:
        return ~(uint32_t)(NVME_BAR_BYTES - 1);
    case NCFG_BAR1:
        return 0xffffffffu;
    case NCFG_PM_CONTROL:
        return 0x00000003u;
    case NCFG_MSIX:
        return NCFG_MSIX_ENABLE | NCFG_MSIX_MASK;
    case NCFG_DEVICE_CONTROL:
        return NCFG_DEVICE_CONTROL_MASK;
    case NCFG_LINK_CONTROL:
        return 0x00cbu;
    case NCFG_DEVICE_CONTROL2:
        return 0x001fu;
    case NCFG_LINK_CONTROL2:
        return 0x000fu;
    default:
        return 0;
    }
}

/* Bits that a written 1 clears. */
static uint32_t config_w1c(unsigned dw)
{
    return dw == NCFG_COMMAND          ? NCFG_STATUS_W1C << 16
           : dw == NCFG_DEVICE_CONTROL ? NCFG_DEVICE_STATUS_W1C << 16
                                       : 0;
}

uint32_t nvme_config_read(const nvme *n, unsigned dw)
{
    uint32_t v = dw < NVME_CONFIG_DW ? n->config[dw] : 0; /* no extended capabilities */
    if (dw == NCFG_DEVICE_CONTROL && n->tags.in_flight)
        v |= NCFG_DEVICE_PENDING << 16;
    return v;
}

bool nvme_config_write(nvme *n, unsigned dw, uint8_t be, uint32_t value)
{
    uint32_t enabled = 0, mask;
    if (dw >= NVME_CONFIG_DW)
        return false;
    for (unsigned i = 0; i < 4; i++) {
        if (be >> i & 1)
            enabled |= 0xffu << 8 * i;
    }
    mask = config_writable(dw) & enabled;
    if (dw == NCFG_PM_CONTROL && ((value & 3) == 1 || (value & 3) == 2))
        mask = 0; /* a state that it does not have is not entered */
    n->config[dw] = (n->config[dw] & ~mask) | (value & mask);
    n->config[dw] &= ~(value & enabled & config_w1c(dw));
    return dw == NCFG_DEVICE_CONTROL && (value & enabled & NCFG_DEVICE_CONTROL_FLR);
}

uint64_t nvme_config_bar(const nvme *n)
{
    return (uint64_t)n->config[NCFG_BAR1] << 32 | (n->config[NCFG_BAR0] & ~(uint32_t)0xf);
}

static bool config_awake(const nvme *n)
{
    return !(n->config[NCFG_PM_CONTROL] & 3);
}

bool nvme_config_decodes(const nvme *n)
{
    return (n->config[NCFG_COMMAND] & NCFG_COMMAND_MEMORY) && config_awake(n);
}

bool nvme_config_masters(const nvme *n)
{
    return (n->config[NCFG_COMMAND] & NCFG_COMMAND_MASTER) && config_awake(n);
}

bool nvme_config_msix(const nvme *n)
{
    return (n->config[NCFG_MSIX] & NCFG_MSIX_ENABLE) != 0;
}

bool nvme_config_msix_mask(const nvme *n)
{
    return (n->config[NCFG_MSIX] & NCFG_MSIX_MASK) != 0;
}

uint32_t nvme_config_mps(const nvme *n)
{
    uint32_t code = n->config[NCFG_DEVICE_CONTROL] >> 5 & 7;
    return 128u << (code < n->mps_code ? code : n->mps_code);
}

uint32_t nvme_config_mrrs(const nvme *n)
{
    uint32_t code = n->config[NCFG_DEVICE_CONTROL] >> 12 & 7;
    return 128u << (code < 5 ? code : 5);
}

unsigned nvme_config_tags(const nvme *n)
{
    return n->config[NCFG_DEVICE_CONTROL] & NCFG_DEVICE_EXTENDED_TAGS ? DXPU_TAGS_256
                                                                      : DXPU_TAGS_32;
}

uint64_t nvme_config_timeout_ns(const nvme *n)
{
    uint32_t control = n->config[NCFG_DEVICE_CONTROL2];
    uint64_t us = 50000; /* the upper end of the range that is programmed */
    if (control & NCFG_TIMEOUT_DISABLE)
        return DXPU_NEVER;
    switch (control & 0xf) {
    case 0x1:
        us = 100;
        break;
    case 0x2:
        us = 10000;
        break;
    case 0x5:
        us = 55000;
        break;
    case 0x6:
        us = 210000;
        break;
    case 0x9:
        us = 900000;
        break;
    case 0xa:
        us = 3500000;
        break;
    case 0xd:
        us = 13000000;
        break;
    case 0xe:
        us = 64000000;
        break;
    default:
        break;
    }
    return us * 1000 > n->timeout_least_ns ? us * 1000 : n->timeout_least_ns;
}

void nvme_config_status(nvme *n, uint32_t command, uint32_t device)
{
    n->config[NCFG_COMMAND] |= command << 16;
    n->config[NCFG_DEVICE_CONTROL] |= device << 16;
}
