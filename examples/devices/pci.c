/* pci.c - see pci.h
   SPDX-License-Identifier: MIT

   CONTENTS   1 Bytes   2 Configuration space   3 Completions   4 Errors   5 Memory requests */
#include "pci.h"

/* ==== 1  Bytes ================================================================================ */

static uint32_t spread(uint8_t be)
{
    uint32_t mask = 0;
    for (unsigned i = 0; i < 4; i++) {
        if (be >> i & 1)
            mask |= 0xffu << 8 * i;
    }
    return mask;
}

/* ==== 2  Configuration space ================================================================== */

enum {
    COMMAND_MEMORY = 0x0002,
    COMMAND_MASTER = 0x0004,
    COMMAND_SERR = 0x0100,
    COMMAND_MASK = 0x0546, /* memory, master, parity, SERR#, INTx disable */
    DEVICE_CONTROL_MASK = 0x79ff,
    DEVICE_CONTROL_UNSUPPORTED = 0x0008,
    DEVICE_CONTROL_FLR = 0x8000,
    DEVICE_CONTROL_RESET = 0x2810, /* MRRS 512, No Snoop and Relaxed Ordering enabled */
    LINK_CONTROL_MASK = 0x00cb,
    LINK_SPEED = 3,          /* 8 GT/s */
    VIRTUAL_ENABLE = 0x0001, /* of SR-IOV Control */
    VIRTUAL_MEMORY = 0x0008,
    VIRTUAL_CONTROL = 0x0019, /* these, ARI Capable Hierarchy */
    VIRTUAL_PAGES = 0x0553    /* 4 and 8 KB, 64 and 256 KB, 1 and 4 MB */
};
#define HEADER_SEVERAL       0x00800000u /* of Header Type */
#define COMMAND_STATUS_W1C   0xf9000000u
#define COMMAND_SYSTEM_ERROR 0x40000000u
#define COMMAND_PARITY       0x80000000u
#define DEVICE_STATUS_W1C    0x000f0000u
#define DEVICE_ERROR         0x00010000u /* correctable; non-fatal and fatal are above it */
#define DEVICE_UNSUPPORTED   0x00080000u
#define DEVICE_CAPABILITIES  0x10008020u /* FLR, role-based errors, 8-bit tags */
/* Those that every endpoint has: also of the data link, which a fabric never shows. */
#define AER_ERRORS                                                                                 \
    (0x00000010u | PCI_POISONED | PCI_COMPLETION_TIMEOUT | PCI_UNEXPECTED_COMPLETION |             \
     PCI_MALFORMED | PCI_UNSUPPORTED)
#define AER_SEVERITY_RESET 0x00462030u
#define AER_CORRECTABLES   0x000031c1u
#define AER_ADVISORY       0x00002000u

void pci_init(pci_function *f, const device_port *port, uint64_t mps_bytes)
{
    f->port = port;
    while (128u << f->mps_code < mps_bytes && f->mps_code < 5)
        f->mps_code++;
}

void pci_register(pci_function *f, unsigned dw, uint32_t value, uint32_t writable)
{
    f->config[dw] = value;
    f->writable[dw] = writable;
}

/* What software controls for all virtual functions by their physical one is not theirs to change
   (9.3.4, 9.3.5): of the registers here, they have Bus Master Enable and the reset alone. */
static void reset_virtual(pci_function *f)
{
    memset(f->writable, 0, PCI_HEADER_DW * sizeof f->writable[0]);
    f->config[PCI_ID] = 0xffffffffu;
    f->config[f->express + PCIE_DEVICE_CONTROL] = 0;
    f->config[f->express + PCIE_LINK_CONTROL2] = 0;
    f->writable[PCI_COMMAND] = COMMAND_MASTER;
}

/* Registers of SR-IOV (9.3.3), as after any reset of the physical function. */
static void reset_virtuals(pci_function *f)
{
    unsigned s = PCI_SRIOV;
    if (!f->virtuals || !f->extended)
        return;
    memset(f->config + s, 0, (PCI_CONFIG_DW - s) * sizeof f->config[0]);
    f->config[s] = 0x00010010u;
    pci_register(f, s + SRIOV_CONTROL, 0, VIRTUAL_CONTROL);
    f->config[s + SRIOV_TOTAL] = (uint32_t)f->virtuals << 16 | f->virtuals;
    pci_register(f, s + SRIOV_NUMBER, 0, 0xffffu);
    f->config[s + SRIOV_STRIDE] = 0x00010001u; /* the first one is the next function */
    f->config[s + SRIOV_DEVICE] = f->config[PCI_ID] & 0xffff0000u;
    f->config[s + SRIOV_PAGES] = VIRTUAL_PAGES;
    pci_register(f, s + SRIOV_PAGE, 1, VIRTUAL_PAGES);
    for (unsigned i = 0; i < PCI_BARS; i++) {
        if (!f->virtual_bar_bytes[i])
            continue;
        pci_register(f, s + SRIOV_BAR0 + i, f->virtual_bar_flags[i], 0xfffffff0u);
        if (f->virtual_bar_flags[i] & PCI_BAR_64)
            pci_register(f, s + SRIOV_BAR0 + i + 1, 0, 0xffffffffu);
    }
}

void pci_virtual_bar(pci_function *f, unsigned bar, uint64_t bytes, uint32_t flags)
{
    f->virtual_bar_bytes[bar] = bytes;
    f->virtual_bar_flags[bar] = flags;
}

/* Of each virtual function: whole pages of the system. */
static uint64_t virtual_bytes(const pci_function *f, unsigned bar)
{
    uint64_t page = (uint64_t)f->config[PCI_SRIOV + SRIOV_PAGE] << 12;
    return f->virtual_bar_bytes[bar] > page ? f->virtual_bar_bytes[bar] : page;
}

static uint64_t bar_at(const pci_function *f, unsigned dw)
{
    uint32_t low = f->config[dw];
    uint64_t high = low & PCI_BAR_64 ? f->config[dw + 1] : 0;
    return high << 32 | (low & ~(uint32_t)0xf);
}

/* What was written to SR-IOV: of a BAR only whole multiples of its size stay, and the number of
   functions stays while they are there. */
static void virtuals_written(pci_function *f, unsigned dw, uint32_t before)
{
    unsigned at = dw - PCI_SRIOV, bar = at - SRIOV_BAR0;
    bool there = f->config[PCI_SRIOV + SRIOV_CONTROL] & VIRTUAL_ENABLE;
    if (there && (at == SRIOV_NUMBER || at == SRIOV_PAGE))
        f->config[dw] = before;
    if (at == SRIOV_PAGE && (!f->config[dw] || (f->config[dw] & (f->config[dw] - 1))))
        f->config[dw] = before; /* one size */
    for (unsigned i = 0; bar < PCI_BARS && i < PCI_BARS; i++) {
        uint64_t mask = ~(virtual_bytes(f, i) - 1);
        uint32_t *low = &f->config[PCI_SRIOV + SRIOV_BAR0 + i];
        if (!f->virtual_bar_bytes[i])
            continue;
        *low &= (uint32_t)mask | 0xfu;
        if (*low & PCI_BAR_64)
            low[1] &= (uint32_t)(mask >> 32);
    }
}

unsigned pci_virtuals(const pci_function *f)
{
    unsigned number = f->config[PCI_SRIOV + SRIOV_NUMBER] & 0xffff;
    if (!f->virtuals || !(f->config[PCI_SRIOV + SRIOV_CONTROL] & VIRTUAL_ENABLE))
        return 0;
    return number < f->virtuals ? number : f->virtuals;
}

const pci_function *pci_settings(const pci_function *f)
{
    return f->physical ? f->physical : f;
}

/* Software has enabled its memory. */
static bool has_memory(const pci_function *f)
{
    const pci_function *p = f->physical;
    if (p)
        return f->number <= pci_virtuals(p) &&
               (p->config[PCI_SRIOV + SRIOV_CONTROL] & VIRTUAL_MEMORY);
    return f->config[PCI_COMMAND] & COMMAND_MEMORY;
}

void pci_reset(pci_function *f, const pci_identity *id)
{
    uint32_t link = (uint32_t)id->lanes << 4 | LINK_SPEED;
    unsigned e = id->capability / 4u;
    memset(f->bar_bytes, 0, sizeof f->bar_bytes);
    memset(f->config, 0, PCI_HEADER_DW * sizeof f->config[0]);
    memset(f->writable, 0, PCI_HEADER_DW * sizeof f->writable[0]);
    memset(f->clears, 0, PCI_HEADER_DW * sizeof f->clears[0]);
    f->express = e;
    f->config[PCI_ID] = (uint32_t)id->device << 16 | id->vendor;
    pci_register(f, PCI_COMMAND, 0x0010u << 16, COMMAND_MASK); /* a capability list */
    f->clears[PCI_COMMAND] = COMMAND_STATUS_W1C;
    f->config[PCI_CLASS] = id->class_revision;
    pci_register(f, PCI_CACHE_LINE, f->several ? HEADER_SEVERAL : 0, 0x000000ffu);
    f->config[PCI_SUBSYSTEM] = f->config[PCI_ID];
    f->config[PCI_CAPABILITIES] = id->capability;
    f->writable[PCI_INTERRUPT] = 0x000000ffu;
    f->config[e] = 0x00020010u; /* the last capability; version 2, endpoint */
    f->config[e + PCIE_DEVICE_CAP] = DEVICE_CAPABILITIES | f->mps_code;
    pci_register(f, e + PCIE_DEVICE_CONTROL, DEVICE_CONTROL_RESET, DEVICE_CONTROL_MASK);
    f->clears[e + PCIE_DEVICE_CONTROL] = DEVICE_STATUS_W1C;
    f->config[e + PCIE_LINK_CAP] = link;
    pci_register(f, e + PCIE_LINK_CONTROL, link << 16, LINK_CONTROL_MASK);
    f->writable[e + PCIE_DEVICE_CONTROL2] = 0x0000001fu;
    f->config[e + PCIE_LINK_CAP2] = 0x0000000eu; /* 2.5, 5 and 8 GT/s */
    pci_register(f, e + PCIE_LINK_CONTROL2, LINK_SPEED, 0x0000000fu);
    reset_virtuals(f);
    if (f->physical)
        reset_virtual(f);
}

void pci_extended(pci_function *f, uint64_t serial)
{
    memset(f->config + PCI_AER, 0, (PCI_CONFIG_DW - PCI_AER) * sizeof f->config[0]);
    f->extended = true;
    f->config[PCI_AER] = 0x00020001u | PCI_SERIAL * 4u << 20; /* version 2 */
    f->clears[PCI_AER + AER_STATUS] = AER_ERRORS;
    pci_register(f, PCI_AER + AER_MASK, 0, AER_ERRORS);
    pci_register(f, PCI_AER + AER_SEVERITY, AER_SEVERITY_RESET, AER_ERRORS);
    f->clears[PCI_AER + AER_CORRECTABLE_STATUS] = AER_CORRECTABLES;
    pci_register(f, PCI_AER + AER_CORRECTABLE_MASK, AER_ADVISORY, AER_CORRECTABLES);
    if (f->physical) { /* errors are its own, what becomes of them is not */
        f->writable[PCI_AER + AER_MASK] = f->writable[PCI_AER + AER_SEVERITY] = 0;
        f->writable[PCI_AER + AER_CORRECTABLE_MASK] = 0;
        f->config[PCI_AER] = 0x00020001u | PCI_ARI * 4u << 20;
        f->config[PCI_ARI] = 0x0001000eu;
        return;
    }
    f->config[PCI_SERIAL] = 0x00010003u;
    f->config[PCI_SERIAL + 1] = (uint32_t)serial;
    f->config[PCI_SERIAL + 2] = (uint32_t)(serial >> 32);
    if (f->virtuals) {
        f->config[PCI_SERIAL] |= PCI_ARI * 4u << 20;
        f->config[PCI_ARI] = 0x0001000eu | PCI_SRIOV * 4u << 20; /* no next function */
        reset_virtuals(f);
    }
}

void pci_bar(pci_function *f, unsigned bar, uint64_t bytes, uint32_t flags)
{
    uint64_t mask = ~(bytes - 1);
    f->bar_bytes[bar] = bytes;
    if (f->physical) /* SR-IOV has them */
        return;
    pci_register(f, PCI_BAR0 + bar, flags, (uint32_t)mask & ~(uint32_t)0xf);
    if (flags & PCI_BAR_64)
        pci_register(f, PCI_BAR0 + bar + 1, 0, (uint32_t)(mask >> 32));
}

uint64_t pci_bar_base(const pci_function *f, unsigned bar)
{
    const pci_function *p = f->physical;
    if (p)
        return bar_at(p, PCI_SRIOV + SRIOV_BAR0 + bar) + (f->number - 1u) * virtual_bytes(p, bar);
    return bar_at(f, PCI_BAR0 + bar);
}

/* True when the function is to be reset. */
static bool config_write(pci_function *f, unsigned dw, uint8_t be, uint32_t value)
{
    uint32_t enabled = spread(be), mask, before;
    if (dw >= PCI_CONFIG_DW)
        return false;
    before = f->config[dw];
    mask = f->writable[dw] & enabled;
    f->config[dw] = (f->config[dw] & ~mask) | (value & mask);
    f->config[dw] &= ~(value & enabled & f->clears[dw]);
    if (f->virtuals && dw >= PCI_SRIOV)
        virtuals_written(f, dw, before);
    return dw == f->express + PCIE_DEVICE_CONTROL && (value & enabled & DEVICE_CONTROL_FLR);
}

bool pci_config_request(pci_function *f, const dxpu_tlp *t)
{
    unsigned dw = t->register_bytes / 4u;
    uint8_t bytes[4];
    dxpu_bytes data = { bytes, sizeof bytes }, none = { NULL, 0 };
    bool reset;
    /* there is no such function; with virtual ones the device number is a part of it */
    if (f->number != (f->physical || f->virtuals ? t->target & 0xff : DXPU_BDF_FN(t->target))) {
        pci_unsupported(f, t);
        return false;
    }
    if (t->ep) { /* discarded; the completion says so (2.7.2.2) */
        pci_error(f, PCI_POISONED, true, t);
        pci_complete(f, t, DXPU_CPL_UR, none);
        return false;
    }
    if (t->type == DXPU_TLP_CFGRD0) {
        dxpu_put_le32(bytes, dw < PCI_CONFIG_DW ? f->config[dw] : 0);
        pci_complete(f, t, DXPU_CPL_SC, data);
        return false;
    }
    f->bdf = t->target;
    reset = config_write(f, dw, t->first_be, dxpu_get_le32(t->payload.ptr));
    pci_complete(f, t, DXPU_CPL_SC, none);
    return reset;
}

uint32_t pci_mps(const pci_function *f)
{
    uint32_t code = pci_settings(f)->config[f->express + PCIE_DEVICE_CONTROL] >> 5 & 7;
    return 128u << (code < f->mps_code ? code : f->mps_code);
}

/* ==== 3  Completions ========================================================================== */

enum { RCB_BYTES = 128 }; /* only a root complex may complete at 64 */

void pci_emit(pci_function *f, const dxpu_tlp *t)
{
    uint8_t out[DXPU_TLP_MAX_BYTES];
    size_t len = 0;
    dxpu_bytes tlp = { out, 0 };
    int rc = dxpu_tlp_encode(t, out, sizeof out, &len);
    DXPU_ASSERT(rc == DXPU_OK);
    if (rc != DXPU_OK)
        return;
    tlp.len = len;
    f->port->emit(f->port->user, tlp);
}

void pci_complete(pci_function *f, const dxpu_tlp *req, uint8_t status, dxpu_bytes data)
{
    dxpu_tlp cpl;
    dxpu_tlp_completion(req, f->bdf, status, &cpl);
    cpl.payload = data;
    pci_emit(f, &cpl);
}

void pci_complete_read(pci_function *f, const dxpu_tlp *req, const uint8_t *data)
{
    dxpu_cpl_split split;
    dxpu_tlp cpl;
    uint64_t at;
    if (dxpu_cpl_split_start(&split, req, RCB_BYTES, pci_mps(f)) != DXPU_OK) {
        pci_unsupported(f, req);
        return;
    }
    dxpu_tlp_completion(req, f->bdf, DXPU_CPL_SC, &cpl);
    while (dxpu_cpl_split_next(&split, &cpl, &at)) {
        cpl.payload.ptr = data + (at - req->address);
        cpl.payload.len = cpl.length_dw * 4u;
        pci_emit(f, &cpl);
    }
}

void pci_unsupported(pci_function *f, const dxpu_tlp *req)
{
    dxpu_bytes none = { NULL, 0 };
    bool answer = dxpu_tlp_class(req) == DXPU_NONPOSTED;
    pci_error(f, PCI_UNSUPPORTED, answer, req); /* the requester knows from the completion */
    if (answer)
        pci_complete(f, req, DXPU_CPL_UR, none);
}

/* ==== 4  Errors ===================================================== Base Spec 6.2, 7.8.4 ==== */

typedef enum error_kind { ERROR_CORRECTABLE, ERROR_NONFATAL, ERROR_FATAL } error_kind;

/* The header goes to the log as in the TLP, byte 0 in bits 31:24. */
static void error_log_header(pci_function *f, const dxpu_tlp *t)
{
    uint32_t *log = &f->config[PCI_AER + AER_HEADER_LOG];
    uint8_t out[DXPU_TLP_MAX_BYTES];
    size_t len = 0, skip;
    memset(log, 0, 4 * sizeof *log);
    if (!t || dxpu_tlp_encode(t, out, sizeof out, &len) != DXPU_OK)
        return;
    skip = t->prefix_count * (size_t)4;
    for (size_t i = 0; i < t->header_dw; i++) {
        const uint8_t *p = out + skip + i * 4;
        log[i] = dxpu_get_be32(p);
    }
}

/* False when software has masked the error. */
static bool error_log(pci_function *f, uint32_t error, error_kind kind, const dxpu_tlp *t)
{
    uint32_t *aer = &f->config[PCI_AER], first = aer[AER_CONTROL] & 0x1f;
    const uint32_t *set = &pci_settings(f)->config[PCI_AER];
    if (kind == ERROR_CORRECTABLE) {
        aer[AER_CORRECTABLE_STATUS] |= AER_ADVISORY;
        if (set[AER_CORRECTABLE_MASK] & AER_ADVISORY)
            return false;
    }
    if (!(set[AER_MASK] & error) && !(aer[AER_STATUS] >> first & 1)) { /* the log is free */
        for (first = 0; !(error >> first & 1); first++) {
        }
        aer[AER_CONTROL] = (aer[AER_CONTROL] & ~0x1fu) | first;
        error_log_header(f, t);
    }
    aer[AER_STATUS] |= error;
    return kind == ERROR_CORRECTABLE || !(set[AER_MASK] & error);
}

static void error_message(pci_function *f, error_kind kind)
{
    static const uint8_t codes[] = { 0x30, 0x31, 0x33 };
    dxpu_tlp t;
    memset(&t, 0, sizeof t);
    t.type = DXPU_TLP_MSG;
    t.header_dw = 4;
    t.requester = f->bdf;
    t.message_code = codes[kind];
    t.message_routing = DXPU_MSG_TO_ROOT;
    pci_emit(f, &t);
}

void pci_error(pci_function *f, uint32_t error, bool advisory, const dxpu_tlp *t)
{
    uint32_t *control = &f->config[f->express + PCIE_DEVICE_CONTROL];
    const uint32_t *set = pci_settings(f)->config;
    uint32_t wishes = set[f->express + PCIE_DEVICE_CONTROL];
    uint32_t severity = f->extended ? set[PCI_AER + AER_SEVERITY] : AER_SEVERITY_RESET;
    error_kind kind = severity & error ? ERROR_FATAL
                      : advisory       ? ERROR_CORRECTABLE
                                       : ERROR_NONFATAL;
    bool serr = kind != ERROR_CORRECTABLE && (set[PCI_COMMAND] & COMMAND_SERR);
    bool wanted = (wishes >> kind & 1) != 0;
    *control |= DEVICE_ERROR << kind;
    if (error == PCI_UNSUPPORTED) {
        *control |= DEVICE_UNSUPPORTED;
        wanted = wanted && (wishes & DEVICE_CONTROL_UNSUPPORTED);
    }
    if (error == PCI_POISONED)
        f->config[PCI_COMMAND] |= COMMAND_PARITY;
    if ((f->extended && !error_log(f, error, kind, t)) || (!wanted && !serr))
        return;
    if (serr)
        f->config[PCI_COMMAND] |= COMMAND_SYSTEM_ERROR;
    error_message(f, kind);
}

void pci_poisoned(pci_function *f)
{
    pci_error(f, PCI_POISONED, false, NULL);
}

/* ==== 5  Memory requests ====================================================================== */

bool pci_locate(const pci_function *f, unsigned bar, const dxpu_tlp *t, uint32_t bytes,
                uint64_t *offset)
{
    uint64_t base = pci_bar_base(f, bar), at = t->address - base, size = f->bar_bytes[bar];
    if (!has_memory(f) || t->address < base || at >= size || bytes > size - at)
        return false;
    *offset = at;
    return true;
}

bool pci_claims(const pci_function *f, uint64_t address)
{
    bool is = false;
    for (unsigned i = 0; i < PCI_BARS; i++)
        is |= f->bar_bytes[i] && address - pci_bar_base(f, i) < f->bar_bytes[i];
    return is && has_memory(f);
}

uint32_t pci_enabled(const dxpu_tlp *t, uint32_t i)
{
    return spread(i == 0 ? t->first_be : i + 1u == t->length_dw ? t->last_be : 0xf);
}

void pci_store(uint8_t *to, const dxpu_tlp *t)
{
    uint32_t len = t->length_dw * 4u;
    for (unsigned i = 0; i < 4; i++) {
        if (t->first_be >> i & 1)
            to[i] = t->payload.ptr[i];
        if (len > 4 && (t->last_be >> i & 1))
            to[len - 4 + i] = t->payload.ptr[len - 4 + i];
    }
    if (len > 8)
        memcpy(to + 4, t->payload.ptr + 4, len - 8);
}
