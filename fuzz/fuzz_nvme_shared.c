/* Fuzz target: three NVMe controllers of one subsystem, each under a hostile host. The input is
   steps: reservations, identifiers, attachments, I/O, features, logs, resets, ends of leases, a
   controller that goes and comes, and entries of any other kind. After each the reservations are
   sound, and each host reads and writes what they allow it.
   libFuzzer: -max_len=512 */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#define RC_MEM_BYTES (7 << 20)
#include "input.h"
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>
#include "dxpu.h"

#include "device_rig.h"
#include "function.h"
#include "nvme.h"
#include "pci.h"

#include "nvme_driver.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

enum { HOSTS = 3, NAMESPACES = 2, STEPS_MAX = 200, OWN_DATA = MEM_DATA + 0x10000 };
enum { CONFLICT = NVME_RESERVATION_CONFLICT | NVME_DNR };

static driver *d[HOSTS];

static void boot(unsigned host)
{
    drv_enumerate(d[host]);
    drv_enable(d[host]);
    drv_queues(d[host], 1);
}

static void open_one(unsigned host)
{
    drv_subsystem = "s";
    drv_controller = host + 1;
    d[host] = drv_open_set(NULL, NAMESPACES, NULL);
    boot(host);
}

/* All completions of a queue; the status of this command, 0xffff: it is not over. */
static uint16_t reap(unsigned host, unsigned q, uint16_t cid)
{
    uint16_t status = 0xffff;
    result res;
    while (drv_reap(d[host], q, &res)) {
        if (res.cid == cid)
            status = res.status;
        drv_consumed(d[host], q);
    }
    return status;
}

static uint16_t ask(unsigned host, unsigned q, const sqe *s)
{
    uint16_t cid = drv_send(d[host], q, s);
    drv_ring(d[host], q);
    rc_run(&d[host]->r);
    return reap(host, q, cid);
}

static uint16_t move(unsigned host, uint8_t opcode, uint32_t nsid)
{
    sqe s = command(opcode, nsid);
    s.dw[6] = MEM_LOW + OWN_DATA;
    return ask(host, 1, &s);
}

static void reservation(input *in, unsigned host)
{
    static const uint8_t opcodes[] = { 0x0d, 0x0e, 0x11, 0x15 };
    uint8_t opcode = opcodes[next(in) % 4];
    sqe s = command(opcode, 1u + next(in) % NAMESPACES);
    s.dw[10] = next(in);
    s.dw[10] |= (uint32_t)next(in) % 8 << 8;
    s.dw[10] |= (uint32_t)next(in) << 24;
    s.dw[11] = next(in);
    if (s.dw[0] == 0x0e)
        s.dw[10] &= 0xff;
    dxpu_put_le64(d[host]->r.mem + MEM_DATA, next(in) % 4);
    dxpu_put_le64(d[host]->r.mem + MEM_DATA + 8, next(in) % 4);
    must(ask(host, 1, &s) != 0xffff);
}

static void identify_host(input *in, unsigned host)
{
    sqe s = command(0x09, 0);
    s.dw[10] = 0x81;
    s.dw[11] = next(in) & 1;
    memset(d[host]->r.mem + MEM_DATA, 0, 16);
    d[host]->r.mem[MEM_DATA] = next(in) % 4;
    must(ask(host, 0, &s) != 0xffff);
}

static void attach(input *in, unsigned host)
{
    sqe s = command(0x15, 1u + next(in) % NAMESPACES);
    unsigned count = next(in) % 5;
    s.dw[10] = next(in) % 3;
    dxpu_put_le16(d[host]->r.mem + MEM_DATA, count);
    for (unsigned i = 0; i < count; i++)
        dxpu_put_le16(d[host]->r.mem + MEM_DATA + 2 + 2 * i, next(in) % 5);
    must(ask(host, 0, &s) != 0xffff);
}

static void reset(input *in, unsigned host)
{
    const dxpu_event on = { .type = DXPU_EVENT_HOT_RESET, .flags = DXPU_EVENT_ON };
    const dxpu_event off = { .type = DXPU_EVENT_HOT_RESET };
    switch (next(in) % 3) {
    case 0:
        reg_set32(&d[host]->r, 0x14, 0);
        break;
    case 1:
        nvme_kind.event(d[host]->r.dev, &on);
        nvme_kind.event(d[host]->r.dev, &off);
        break;
    default:
        nvme_kind.reset(d[host]->r.dev);
        break;
    }
    rc_forget(&d[host]->r);
    boot(host);
}

static void end_lease(unsigned host, bool last)
{
    int how = DEVICE_WIPING;
    nvme_kind.reset(d[host]->r.dev);
    for (unsigned n = 0; how == DEVICE_WIPING; n++) {
        how = (last ? nvme_kind.wipe : nvme_kind.leave)(d[host]->r.dev, n == 0);
        must(n < 1000);
    }
    must(how == DEVICE_WIPED);
    rc_forget(&d[host]->r);
    boot(host);
}

/* Of any kind, but what ends queues, and with its data in memory that it may write. */
static void any_entry(input *in, unsigned host, unsigned q)
{
    static const uint8_t admin_opcodes[] = { 0x02, 0x06, 0x08, 0x09, 0x0a, 0x0c, 0x0d, 0x80 };
    uint8_t opcode = q ? next(in) : admin_opcodes[next(in) % 8];
    sqe s = command(opcode, next(in) % 4);
    s.dw[8] = MEM_LOW + MEM_DATA + 0x1000;
    s.dw[10] = next(in);
    s.dw[10] |= (uint32_t)next(in) << 16;
    s.dw[11] = next(in);
    s.dw[12] = next(in) & 3;
    (void)ask(host, q, &s);
}

static void check_access(unsigned host, uint32_t i)
{
    const nvme_reservation *r = &model(d[host])->subsystem->reservation[i];
    const nvme *n = model(d[host]);
    bool is_registered = false, is_holder = false;
    uint16_t reads, writes;
    if (!n->ns[i].is.attached)
        return;
    for (uint32_t k = 0; k < r->count; k++) {
        bool is = r->of[k].host.alone == n->host.alone &&
                  !memcmp(r->of[k].host.id, n->host.id, sizeof n->host.id);
        is_registered |= is;
        is_holder |= is && (r->type >= 5 || r->holder == k);
    }
    reads = move(host, 0x02, i + 1);
    writes = move(host, 0x01, i + 1);
    must(writes == (!r->type || (r->type <= 2 ? is_holder : is_registered) ? 0 : CONFLICT));
    must(reads ==
         (!r->type || r->type % 2 || (r->type == 2 ? is_holder : is_registered) ? 0 : CONFLICT));
}

static void check(void)
{
    const nvme_subsystem *b = model(d[0])->subsystem;
    for (uint32_t i = 0; i < NAMESPACES; i++) {
        const nvme_reservation *r = &b->reservation[i];
        must(r->type <= 6 && r->count <= NVME_REGISTRANTS);
        must(!r->type || r->count);
        must(!r->type || r->type >= 5 || r->holder < r->count);
        for (uint32_t k = 0; k < r->count; k++) {
            for (uint32_t j = 0; j < k; j++)
                must(memcmp(&r->of[k].host, &r->of[j].host, sizeof r->of[k].host) != 0);
        }
        for (unsigned host = 0; host < HOSTS; host++)
            check_access(host, i);
    }
}

static void step(input *in)
{
    uint8_t op = next(in);
    unsigned host = (op >> 6) % HOSTS;
    switch (op & 15) {
    case 5:
        identify_host(in, host);
        break;
    case 6:
        attach(in, host);
        break;
    case 7:
        reset(in, host);
        break;
    case 8:
        end_lease(host, false);
        break;
    case 9:
        end_lease(host, true);
        break;
    case 10:
        drv_close(d[host]);
        open_one(host);
        break;
    case 11:
    case 12:
        any_entry(in, host, op & 1);
        break;
    case 13:
        nvme_kind.tick(d[host]->r.dev, 1000);
        rc_run(&d[host]->r);
        (void)reap(host, 0, 0);
        break;
    default:
        reservation(in, host);
        break;
    }
    check();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    input in = { data, size };
    for (unsigned i = 0; i < HOSTS; i++)
        open_one(i);
    for (unsigned n = 0; in.left && n < STEPS_MAX; n++)
        step(&in);
    for (unsigned i = 0; i < HOSTS; i++)
        drv_close(d[i]);
    return 0;
}
