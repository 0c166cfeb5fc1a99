/* nvme_cmb.c - the NVMe controller's memory buffer (CMB)
   SPDX-License-Identifier: MIT

   NVMe 1.4, 3.1 and 4.7.  Memory of the controller, behind a BAR of its own, that a host may use
   for submission queues, PRP lists, SGLs and data: what a driver writes there is at the controller
   already when the doorbell arrives, since both are posted writes on one path.  A fetch from host
   memory would cost a round trip over the fabric instead.  Completion queues are not allowed there:
   each look of the driver would be such a round trip.

   Every address that the controller uses is compared with the range that CMBMSC names, so data,
   lists and queues may be here, in host memory, or in both. */
#include "nvme_model.h"
#include "log.h"

enum { CMB_BYTES_MIN = 64 << 10, CMB_BYTES_MAX = 1 << 30 };

#define CMB_CRE  0x1u /* the registers CMBLOC and CMBSZ are enabled */
#define CMB_CMSE 0x2u /* the controller's addresses are compared with CBA */
#define CMB_CBA  (~(uint64_t)(NVME_PAGE_BYTES - 1))

/* The BAR; queues may be partly here (CQMMS), as data and lists may (CDPMLS), also those of
   commands in queues of the host's memory (CDPCILS). */
#define CMB_LOCATION (NVME_CMB_BAR | 1u << 3 | 1u << 5 | 1u << 6)
/* SQS, LISTS, RDS, WDS; the size is in units of 4 KB */
#define CMB_SIZE 0x0000001du

int nvme_cmb_open(nvme *n, uint64_t bytes)
{
    if (!bytes)
        return 0;
    if (bytes < CMB_BYTES_MIN || bytes > CMB_BYTES_MAX || (bytes & (bytes - 1))) {
        log_error("nvme: invalid size of the controller memory buffer: must be 0 or a power of two "
                  "from 64K to 1G");
        return -1;
    }
    if (pages_open_for(&n->cmb, bytes, true, &n->jobs)) {
        log_error("nvme: cannot allocate a controller memory buffer of %llu bytes",
                  (unsigned long long)bytes);
        return -1;
    }
    return 0;
}

void nvme_cmb_clear(nvme *n)
{
    if (n->cmb.size)
        pages_clear(&n->cmb);
}

/* CBA is invalid: the range would not end. */
static bool cmb_invalid(const nvme *n)
{
    uint64_t base = n->cmbmsc & CMB_CBA;
    return (n->cmbmsc & CMB_CMSE) && base + (n->cmb.size - 1) < base;
}

static bool cmb_decodes(const nvme *n)
{
    return n->cmb.size && (n->cmbmsc & (CMB_CRE | CMB_CMSE)) == (CMB_CRE | CMB_CMSE) &&
           !cmb_invalid(n);
}

uint8_t *nvme_cmb_local(void *user, uint64_t address, uint32_t bytes, bool write)
{
    nvme *n = user;
    uint64_t at = address - (n->cmbmsc & CMB_CBA);
    if (!cmb_decodes(n) || at >= n->cmb.size || bytes > n->cmb.size - at)
        return NULL;
    if (write)
        pages_written(&n->cmb, at + bytes);
    return n->cmb.bytes + at;
}

bool nvme_cmb_has(const nvme *n, uint64_t address, uint64_t bytes)
{
    uint64_t base = n->cmbmsc & CMB_CBA;
    return cmb_decodes(n) && (address - base < n->cmb.size || base - address < bytes);
}

uint32_t nvme_cmb_register(const nvme *n, uint32_t offset)
{
    bool enabled = n->cmb.size && (n->cmbmsc & CMB_CRE);
    switch (offset) {
    case NVME_CMBLOC:
        return enabled ? CMB_LOCATION : 0;
    case NVME_CMBSZ:
        return enabled ? CMB_SIZE | (uint32_t)(n->cmb.size / 4096) << 12 : 0;
    case NVME_CMBSTS:
        return n->cmb.size && cmb_invalid(n);
    default:
        return (uint32_t)(offset & 4 ? n->cmbmsc >> 32 : n->cmbmsc);
    }
}

void nvme_cmb_control(nvme *n, uint32_t offset, uint32_t value, uint32_t enabled)
{
    unsigned shift = offset & 4 ? 32 : 0;
    if (!n->cmb.size)
        return;
    n->cmbmsc = (n->cmbmsc & ~((uint64_t)enabled << shift)) | (uint64_t)(value & enabled) << shift;
    n->cmbmsc &= CMB_CBA | CMB_CRE | CMB_CMSE;
}

void nvme_cmb_read(nvme *n, const dxpu_tlp *t, uint64_t offset)
{
    n->count.cmb_reads++;
    pci_complete_read(&n->fn.pci, t, n->cmb.bytes + offset);
}

void nvme_cmb_write(nvme *n, const dxpu_tlp *t, uint64_t offset)
{
    n->count.cmb_writes++;
    pages_written(&n->cmb, offset + t->length_dw * 4u);
    pci_store(n->cmb.bytes + offset, t);
}
