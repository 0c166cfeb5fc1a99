/* nvme_namespace.c - the NVMe controller's namespaces: identify, create, attach, format
   SPDX-License-Identifier: MIT

   Each has a store of the box, and as identifier the store's number.  What a host creates, deletes,
   formats or detaches lasts until a wipe (nvme_layout.c).

   Commands that change the layout take turns: each has the whole of it to itself, from its first
   look to the end of what makes it durable.

   CONTENTS   1 Which there are   2 Identify   3 Turns   4 Erasing   5 Management   6 Format */
#include "nvme_model.h"

/* ==== 1  Which there are ====================================================================== */

static nvme_ns *allocated(nvme *n, uint32_t nsid)
{
    bool there = nsid >= 1 && nsid <= n->ns_count && n->ns[nsid - 1].is.allocated;
    return there ? &n->ns[nsid - 1] : NULL;
}

nvme_ns *nvme_active(nvme *n, uint32_t nsid)
{
    nvme_ns *s = allocated(n, nsid);
    return s && s->is.attached ? s : NULL;
}

/* An identifier that may become active one day is another mistake than one that never will. */
uint16_t nvme_inactive(const nvme *n, uint32_t nsid)
{
    bool valid = nsid >= 1 && nsid <= n->ns_count;
    return (valid ? NVME_INVALID_FIELD : NVME_INVALID_NAMESPACE) | NVME_DNR;
}

uint64_t nvme_blocks(const nvme_ns *s)
{
    return s->is.bytes >> s->is.block_log2;
}

/* ==== 2  Identify ========================================================= NVMe 1.4, 5.15 ==== */

/* A UUID (version 8: ours to define) from the identity, so that it is the same at every start. */
void nvme_uuid(const nvme *n, uint64_t index, uint8_t uuid[16])
{
    uint64_t x = n->identity + index * 0xd1b54a32d192ed03u;
    for (unsigned half = 0; half < 2; half++) {
        x += 0x9e3779b97f4a7c15u;
        dxpu_put_le64(uuid + (size_t)half * 8, block_store_mix(x));
    }
    uuid[6] = (uint8_t)(0x80 | (uuid[6] & 0x0f));
    uuid[8] = (uint8_t)(0x80 | (uuid[8] & 0x3f));
}

/* s NULL: what all namespaces have in common. */
static void identify_namespace(const nvme *n, const nvme_ns *s, uint8_t *p)
{
    if (nvme_is_shared(n)) {
        p[30] = 1;                          /* NMIC: several controllers may have it */
        p[31] = 0xfe | n->subsystem->keeps; /* RESCAP: all types; they persist */
    }
    p[25] = 1;    /* formats, less one */
    p[33] = 0x09; /* deallocated blocks read as zero; Write Zeroes may deallocate */
    dxpu_put_le32(p + 128, 9u << 16);
    dxpu_put_le32(p + 132, 12u << 16);
    if (!s)
        return;
    dxpu_put_le64(p + 0, nvme_blocks(s));
    dxpu_put_le64(p + 8, nvme_blocks(s));
    dxpu_put_le64(p + 16, nvme_blocks(s));
    p[26] = s->is.block_log2 == 12; /* which format */
    dxpu_put_le64(p + 48, s->is.bytes);
}

static void identify_list(nvme *n, uint32_t after, bool attached_only, uint8_t *p)
{
    for (uint32_t nsid = 1; nsid <= n->ns_count; nsid++) {
        if (nsid > after && (attached_only ? nvme_active(n, nsid) : allocated(n, nsid))) {
            dxpu_put_le32(p, nsid);
            p += 4;
        }
    }
}

static void identify_descriptors(nvme *n, uint32_t nsid, uint8_t *p)
{
    uint64_t own = n->functions ? (uint64_t)(n->id - NVME_CONTROLLER) << 16 : 0;
    p[0] = 3; /* a UUID */
    p[1] = 16;
    nvme_uuid(n, nsid | own | (uint64_t)n->ns[nsid - 1].is.generation << 32, p + 4);
}

/* Those from an identifier on, in order, that have the namespace; nsid 0: all. */
static void identify_controllers(const nvme *n, uint32_t from, uint32_t nsid, uint8_t *p)
{
    uint32_t count = 0;
    for (const nvme *o = n->subsystem->first; o; o = o->sibling) {
        if (o->id < from || (nsid && !o->ns[nsid - 1].is.attached) ||
            count == NVME_PAGE_BYTES / 2 - 1)
            continue;
        dxpu_put_le16(p + 2 + 2 * (size_t)count++, o->id);
    }
    dxpu_put_le16(p, count);
}

uint16_t nvme_identify_namespaces(nvme *n, const nvme_command *c, uint8_t *page)
{
    uint32_t cns = c->dw[10] & 0xff, controller = c->dw[10] >> 16;
    bool all = c->nsid == NVME_NSID_ALL, valid = c->nsid >= 1 && c->nsid <= n->ns_count;
    nvme_ns *active = nvme_active(n, c->nsid), *there = allocated(n, c->nsid);
    switch (cns) {
    case 0x00:
    case 0x11: /* the same for those that are not attached */
        if (!valid && (cns == 0x11 || !all))
            return NVME_INVALID_NAMESPACE | NVME_DNR;
        if (all || (cns == 0x11 ? there : active))
            identify_namespace(n, there, page);
        return NVME_SUCCESS; /* of an inactive one all is 0 */
    case 0x02:
    case 0x10:
        if (c->nsid >= 0xfffffffeu)
            return NVME_INVALID_NAMESPACE | NVME_DNR;
        identify_list(n, c->nsid, cns == 0x02, page);
        return NVME_SUCCESS;
    case 0x03:
        if (!active)
            return nvme_inactive(n, c->nsid);
        identify_descriptors(n, c->nsid, page);
        return NVME_SUCCESS;
    case 0x12:
        if (!valid)
            return NVME_INVALID_NAMESPACE | NVME_DNR;
        identify_controllers(n, controller, c->nsid, page);
        return NVME_SUCCESS;
    case 0x13:
        identify_controllers(n, controller, 0, page);
        return NVME_SUCCESS;
    default:
        return NVME_INVALID_FIELD | NVME_DNR;
    }
}

/* ==== 3  Turns ================================================================================ */

/* c->waiting: not its turn yet.  A command that changes the layout begins here. */
static uint16_t take_turn(nvme *n, nvme_command *c)
{
    c->waiting = true;
    nvme_list_append(&n->layout.waiting, c);
    return NVME_PENDING; /* nvme_layout_work() begins it */
}

void nvme_layout_leave(nvme *n, nvme_command *c)
{
    if (c->waiting)
        (void)nvme_list_remove(&n->layout.waiting, c);
    c->waiting = false;
    if (n->layout.owner != c)
        return;
    n->layout.owner = NULL;
    for (uint32_t i = 0; i < n->ns_count; i++)
        n->ns[i].erasing = false;
}

static void turn_over(nvme *n, nvme_command *c, uint16_t status)
{
    nvme_layout_leave(n, c);
    nvme_finish(n, c, status);
}

/* The new layout is durable, or it is not. */
static void layout_kept(nvme *n, nvme_command *c, const nvme_access *a)
{
    if (a && a->error) {
        turn_over(n, c, NVME_INTERNAL_ERROR);
        return;
    }
    nvme_layout_take(n);
    turn_over(n, c, NVME_SUCCESS);
}

/* ==== 4  Erasing ==============================================================================
   Format and the deletion of a namespace: of one, or of all that there are of them.  Each is quiet
   before it is erased, and refuses accesses until the end of the turn. */

static bool is_format(const nvme_command *c)
{
    return c->opcode == 0x80;
}

/* Is namespace `i` one of them? */
static bool is_meant(nvme *n, const nvme_command *c, uint32_t i)
{
    bool there = is_format(c) ? n->ns[i].is.attached : n->ns[i].is.allocated;
    return there && (c->nsid == NVME_NSID_ALL || c->nsid == i + 1);
}

static void erased(nvme *n, nvme_command *c, const nvme_access *a);

/* The rest of namespace `index`, then those behind it, then the layout.  It begins again where it
   stopped when something was not quiet. */
static void erase_rest(nvme *n, nvme_command *c)
{
    nvme_ns *s;
    nvme_op op;
    while (c->index < n->ns_count && !is_meant(n, c, c->index))
        c->index++;
    if (c->index == n->ns_count) {
        nvme_layout_keep(n, c, layout_kept);
        return;
    }
    s = &n->ns[c->index];
    s->erasing = true;
    if (s->accesses)
        return; /* nvme_layout_work() comes back */
    c->end = s->store->size;
    op = c->at < c->end ? NVME_OP_ZERO : NVME_OP_SYNC;
    if (nvme_access_begin(n, c, op, s, c->at, c->end - c->at, true, erased) != NVME_PENDING)
        turn_over(n, c, NVME_INTERNAL_ERROR);
}

static void erased(nvme *n, nvme_command *c, const nvme_access *a)
{
    nvme_layout *next = &n->layout.next[c->index];
    n->ns[c->index].erased++;
    if (a->error) {
        turn_over(n, c, NVME_INTERNAL_ERROR);
    } else if (a->op == NVME_OP_ZERO) {
        c->at += a->bytes;
        erase_rest(n, c);
    } else {
        if (is_format(c))
            next->block_log2 = c->dw[10] & 0xf ? 12 : 9;
        else
            next->allocated = next->attached = false;
        c->index++;
        c->at = 0;
        erase_rest(n, c);
    }
}

/* ==== 5  Management ============================================== NVMe 1.4, 5.19 and 5.20 ==== */

/* The free store that fits best; n->ns_count after *status: there is none. */
static uint32_t free_store(const nvme *n, uint64_t bytes, uint16_t *status)
{
    uint32_t best = n->ns_count;
    *status = NVME_NO_NSID | NVME_DNR;
    for (uint32_t i = 0; i < n->ns_count; i++) {
        const nvme_ns *s = &n->ns[i];
        if (s->is.allocated)
            continue;
        *status = NVME_NO_CAPACITY | NVME_DNR;
        if (s->store->size >= bytes &&
            (best == n->ns_count || s->store->size < n->ns[best].store->size))
            best = i;
    }
    return best;
}

/* Into the next layout.  A status. */
static uint16_t create(nvme *n, nvme_command *c)
{
    const uint8_t *p = c->buffer;
    uint64_t blocks = dxpu_get_le64(p);
    uint32_t log2 = p[26] & 0xf ? 12 : 9, i;
    nvme_layout *next;
    uint16_t status;
    if (p[26] > 1)
        return NVME_INVALID_FORMAT | NVME_DNR;
    if (p[29] || !blocks ||
        dxpu_get_le64(p + 8) > blocks) /* protection; capacity beyond the size */
        return NVME_INVALID_FIELD | NVME_DNR;
    if (dxpu_get_le64(p + 8) < blocks)
        return NVME_NO_THIN_PROVISIONING | NVME_DNR;
    if (blocks > UINT64_MAX >> log2)
        return NVME_NO_CAPACITY | NVME_DNR;
    i = free_store(n, blocks << log2, &status);
    if (i == n->ns_count)
        return status;
    next = &n->layout.next[i];
    next->bytes = blocks << log2;
    next->block_log2 = log2;
    next->generation++;
    next->allocated = true;
    n->ns[i].recovery = 0;
    c->result = i + 1;
    return NVME_SUCCESS;
}

static uint16_t attach(nvme *n, const nvme_command *c)
{
    bool attached = (c->dw[10] & 0xf) == 0;
    nvme_ns *s = allocated(n, c->nsid);
    uint32_t first = dxpu_get_le32(c->buffer);
    if (!s) /* a deletion may have come between */
        return nvme_inactive(n, c->nsid);
    if ((first & 0xffff) != 1 || first >> 16 != n->id)
        return NVME_CONTROLLER_LIST | NVME_DNR;
    if (s->is.attached == attached)
        return (attached ? NVME_ALREADY_ATTACHED : NVME_NOT_ATTACHED) | NVME_DNR;
    n->layout.next[c->nsid - 1].attached = attached;
    return NVME_SUCCESS;
}

/* The command whose turn it is. */
static void begin_turn(nvme *n, nvme_command *c)
{
    uint16_t status = NVME_SUCCESS;
    c->waiting = false;
    c->over = turn_over;
    c->at = c->index = 0;
    n->layout.owner = c;
    for (uint32_t i = 0; i < n->ns_count; i++)
        n->layout.next[i] = n->ns[i].is;
    if (c->opcode == 0x15)
        status = attach(n, c);
    else if (!is_format(c) && (c->dw[10] & 0xf) == 0)
        status = create(n, c);
    else if (c->nsid != NVME_NSID_ALL && !is_meant(n, c, c->nsid - 1))
        status = nvme_inactive(n, c->nsid); /* another one was quicker */
    else {
        erase_rest(n, c);
        return;
    }
    if (status != NVME_SUCCESS)
        turn_over(n, c, status);
    else
        nvme_layout_keep(n, c, layout_kept);
}

bool nvme_layout_work(nvme *n)
{
    nvme_command *c = n->layout.owner;
    if (!c && n->layout.waiting.head) {
        begin_turn(n, nvme_list_take(&n->layout.waiting));
        return true;
    }
    if (!c || c->access || n->ns[c->index].accesses)
        return false;
    erase_rest(n, c); /* it is quiet now */
    return true;
}

static void take_turn_ready(nvme *n, nvme_command *c)
{
    (void)take_turn(n, c);
}

uint16_t nvme_management(nvme *n, nvme_command *c)
{
    if (nvme_is_shared(n) && (c->dw[10] & 0xf) <= 1) /* others use it */
        return NVME_DENIED | NVME_DNR;
    switch (c->dw[10] & 0xf) {
    case 0:
        return nvme_transfer(n, c, false, NVME_PAGE_BYTES, take_turn_ready);
    case 1:
        return c->nsid == NVME_NSID_ALL || allocated(n, c->nsid) ? take_turn(n, c)
                                                                 : nvme_inactive(n, c->nsid);
    default:
        return NVME_INVALID_FIELD | NVME_DNR;
    }
}

/* Of the controllers that it lists: all or none. */
static void attach_shared(nvme *n, nvme_command *c)
{
    bool attached = (c->dw[10] & 0xf) == 0;
    uint32_t count = dxpu_get_le16(c->buffer);
    uint16_t status;
    c->ns = &n->ns[c->nsid - 1];
    status = nvme_reserve_check(n, c);
    if (status == NVME_SUCCESS && (!count || count > NVME_PAGE_BYTES / 2 - 1))
        status = NVME_CONTROLLER_LIST | NVME_DNR;
    for (uint32_t i = 0; status == NVME_SUCCESS && i < count; i++) {
        const nvme *o = nvme_subsystem_find(n, dxpu_get_le16(c->buffer + 2 + 2 * (size_t)i));
        if (!o)
            status = NVME_CONTROLLER_LIST | NVME_DNR;
        else if (o->ns[c->nsid - 1].is.attached == attached)
            status = (attached ? NVME_ALREADY_ATTACHED : NVME_NOT_ATTACHED) | NVME_DNR;
    }
    if (status == NVME_SUCCESS && !attached && !nvme_subsystem_has_place(n, count))
        status = NVME_INTERNAL_ERROR;
    for (uint32_t i = 0; status == NVME_SUCCESS && i < count; i++) {
        nvme *o = nvme_subsystem_find(n, dxpu_get_le16(c->buffer + 2 + 2 * (size_t)i));
        if (o->ns[c->nsid - 1].is.attached != attached) /* else it is there twice */
            nvme_subsystem_attach(o, c->nsid, attached);
    }
    if (status == NVME_SUCCESS)
        nvme_reserve_changed(n);
    nvme_reserve_settle(n, c, status);
}

uint16_t nvme_attachment(nvme *n, nvme_command *c)
{
    if ((c->dw[10] & 0xf) > 1)
        return NVME_INVALID_FIELD | NVME_DNR;
    if (!allocated(n, c->nsid))
        return nvme_inactive(n, c->nsid);
    return nvme_transfer(n, c, false, NVME_PAGE_BYTES,
                         nvme_is_shared(n) ? attach_shared : take_turn_ready);
}

/* ==== 6  Format =========================================================== NVMe 1.4, 5.23 ==== */

/* Whether user data is to be erased or not, it is. */
uint16_t nvme_format(nvme *n, nvme_command *c)
{
    uint32_t format = c->dw[10] & 0xf, secure = c->dw[10] >> 9 & 7;
    if (c->nsid != NVME_NSID_ALL && !nvme_active(n, c->nsid))
        return nvme_inactive(n, c->nsid);
    if (format > 1 || (c->dw[10] & 0x1f0)) /* neither metadata nor protection */
        return NVME_INVALID_FORMAT | NVME_DNR;
    if (secure > 1) /* there is no key to forget */
        return NVME_INVALID_FIELD | NVME_DNR;
    return take_turn(n, c);
}
