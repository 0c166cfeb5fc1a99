/* pci.h - what every endpoint has: configuration space, BARs, completions
   SPDX-License-Identifier: MIT

   A function with a type 0 header (Base Spec 7.5.1) and a PCI Express capability (7.5.3).  A model
   describes it after each reset: pci_reset(), pci_bar(), then pci_register() for what else it has.
   With pci_extended() it has Advanced Error Reporting (7.8.4) and a Device Serial Number (7.9.3)
   too.  Dwords are numbers with byte 0 in bits 7:0. */
#ifndef PCI_H_INCLUDED
#define PCI_H_INCLUDED

#include "device.h"

enum { /* dword indices into the header */
       PCI_ID = 0x00 / 4,
       PCI_COMMAND = 0x04 / 4,
       PCI_CLASS = 0x08 / 4,
       PCI_CACHE_LINE = 0x0c / 4,
       PCI_BAR0 = 0x10 / 4,
       PCI_SUBSYSTEM = 0x2c / 4,
       PCI_CAPABILITIES = 0x34 / 4,
       PCI_INTERRUPT = 0x3c / 4,
       PCI_HEADER_DW = 64, /* the header and what its list of capabilities may have */
       PCI_AER = 0x100 / 4,
       PCI_SERIAL = 0x148 / 4,
       PCI_ARI = 0x154 / 4,   /* alternative routing IDs, and: */
       PCI_SRIOV = 0x160 / 4, /* where there are virtual functions */
       PCI_CONFIG_DW = PCI_SRIOV + 0x40 / 4,
       PCI_BARS = 6,
       PCI_VIRTUAL_MAX = 32 /* virtual functions */
};

enum { /* dword indices from Advanced Error Reporting on */
       AER_STATUS = 1,
       AER_MASK = 2,
       AER_SEVERITY = 3,
       AER_CORRECTABLE_STATUS = 4,
       AER_CORRECTABLE_MASK = 5,
       AER_CONTROL = 6,
       AER_HEADER_LOG = 7
};

enum { /* dword indices from SR-IOV on (9.3.3) */
       SRIOV_CONTROL = 2,
       SRIOV_TOTAL = 3,
       SRIOV_NUMBER = 4,
       SRIOV_STRIDE = 5,
       SRIOV_DEVICE = 6,
       SRIOV_PAGES = 7,
       SRIOV_PAGE = 8,
       SRIOV_BAR0 = 9
};

enum { /* errors, as the Uncorrectable Error Status has them */
       PCI_POISONED = 0x00001000,
       PCI_COMPLETION_TIMEOUT = 0x00004000,
       PCI_UNEXPECTED_COMPLETION = 0x00010000,
       PCI_MALFORMED = 0x00040000,
       PCI_UNSUPPORTED = 0x00100000
};

enum { /* dword indices from the PCI Express capability on */
       PCIE_DEVICE_CAP = 1,
       PCIE_DEVICE_CONTROL = 2,
       PCIE_LINK_CAP = 3,
       PCIE_LINK_CONTROL = 4,
       PCIE_DEVICE_CAP2 = 9,
       PCIE_DEVICE_CONTROL2 = 10,
       PCIE_LINK_CAP2 = 11,
       PCIE_LINK_CONTROL2 = 12
};

enum { PCI_BAR_64 = 0x4, PCI_BAR_PREFETCHABLE = 0x8 }; /* as the BAR itself says it */

typedef struct pci_identity {
    uint16_t vendor, device;
    uint32_t class_revision; /* the dword at 8: class code in bits 31:8 */
    uint8_t capability;      /* byte offset of the PCI Express capability */
    uint8_t lanes;           /* of a link of 8 GT/s */
} pci_identity;

typedef struct pci_function pci_function;
struct pci_function {
    const device_port *port;
    uint16_t bdf;      /* captured from configuration writes; 00:00.0 before the first */
    uint32_t mps_code; /* largest Max_Payload_Size, as Device Capabilities says it */
    unsigned express;  /* dword index of the PCI Express capability */
    bool extended;     /* it has Advanced Error Reporting */
    bool several;      /* its device has other functions */
    uint8_t number;    /* which of them it is */
    /* It is a virtual function of this one, whose settings for all of them count, number times
       First VF Offset behind it; NULL: it is not. */
    const pci_function *physical;
    uint16_t virtuals; /* virtual functions of this one that there can be */
    uint64_t virtual_bar_bytes[PCI_BARS];
    uint32_t virtual_bar_flags[PCI_BARS];
    uint64_t bar_bytes[PCI_BARS];
    uint32_t config[PCI_CONFIG_DW];
    uint32_t writable[PCI_CONFIG_DW];
    uint32_t clears[PCI_CONFIG_DW]; /* bits that a written 1 clears */
};

/* Once, for a function whose rest is zero. */
void pci_init(pci_function *f, const device_port *port, uint64_t mps_bytes);
/* Header and capability as after a reset.  No BARs; bdf stays. */
void pci_reset(pci_function *f, const pci_identity *id);
/* The extended capabilities as after power-up: they outlive every other reset. */
void pci_extended(pci_function *f, uint64_t serial);
/* A memory BAR: bytes is a power of two from 16 on, flags of PCI_BAR_*. */
void pci_bar(pci_function *f, unsigned bar, uint64_t bytes, uint32_t flags);
/* A BAR of each virtual function: before the first pci_reset(). */
void pci_virtual_bar(pci_function *f, unsigned bar, uint64_t bytes, uint32_t flags);
/* How many virtual functions there are now. */
unsigned pci_virtuals(const pci_function *f);
/* Whose Device Control and the like software sets for it: its own, or its physical function's. */
const pci_function *pci_settings(const pci_function *f);
/* A register with its value after reset and the bits that software may change. */
void pci_register(pci_function *f, unsigned dw, uint32_t value, uint32_t writable);

/* Answer a CfgRd0 or CfgWr0.  True when it asked for a function level reset: the answer is on its
   way, the model does the rest. */
bool pci_config_request(pci_function *f, const dxpu_tlp *t);

/* Where a memory request lies in a BAR.  False when not all of its `bytes` bytes from t->address on
   do, or memory is not enabled. */
bool pci_locate(const pci_function *f, unsigned bar, const dxpu_tlp *t, uint32_t bytes,
                uint64_t *offset);
/* An address is in a BAR of its own. */
bool pci_claims(const pci_function *f, uint64_t address);
/* Where its memory begins, as software has set it. */
uint64_t pci_bar_base(const pci_function *f, unsigned bar);
/* Largest payload that it may send. */
uint32_t pci_mps(const pci_function *f);

void pci_emit(pci_function *f, const dxpu_tlp *t);
/* One completion, with data when data.len is not 0. */
void pci_complete(pci_function *f, const dxpu_tlp *req, uint8_t status, dxpu_bytes data);
/* Completions of a whole read: data has the length_dw dwords from t->address on. */
void pci_complete_read(pci_function *f, const dxpu_tlp *req, const uint8_t *data);
/* Unsupported Request: a completion for what is not posted, and the error bits. */
void pci_unsupported(pci_function *f, const dxpu_tlp *req);
/* Poisoned data arrived and is not used. */
void pci_poisoned(pci_function *f);
/* An error in TLP t, or of none: status bits, log, and a message when software wants it.
   advisory: it does no harm here or another reports it, so it counts as correctable unless
   software made it fatal (6.2.3.2.4). */
void pci_error(pci_function *f, uint32_t error, bool advisory, const dxpu_tlp *t);

/* Byte enables of dword i (from 0) of a memory request, as a mask of bits. */
uint32_t pci_enabled(const dxpu_tlp *t, uint32_t i);
/* Copy a write's payload to where the request begins, enabled bytes only. */
void pci_store(uint8_t *to, const dxpu_tlp *t);

#endif /* PCI_H_INCLUDED */
