/* bypass.c - see bypass.h
   SPDX-License-Identifier: MIT */
#include "bypass.h"
#include "log.h"

#include <errno.h>
#include <stdio.h>

void bypass_address(const dxpu_udp_address *from, dxpu_xdp_address *to)
{
    memset(to, 0, sizeof *to);
    if (from->u.any.sa_family == AF_INET6)
        to->v6 = from->u.v6;
    else
        to->v4 = from->u.v4;
}

static uint8_t *room(void *self)
{
    return dxpu_xdp_room(self);
}

static bool commit(void *self, const dxpu_udp_path *to, size_t len)
{
    dxpu_xdp_address address;
    bypass_address(&to->remote, &address);
    return dxpu_xdp_commit(self, to->socket, &address, len);
}

static void flush(void *self)
{
    dxpu_xdp_flush(self);
}

static bool waits(const void *self)
{
    return dxpu_xdp_waits(self);
}

static void on_datagram(void *user, uint8_t *buf, size_t len, unsigned socket,
                        const dxpu_xdp_address *from, unsigned flags)
{
    const dxpu_udp_callbacks *cb = user;
    dxpu_udp_path path;
    memset(&path, 0, sizeof path);
    path.socket = socket;
    if (from->any.sa_family == AF_INET6) {
        path.remote.u.v6 = from->v6;
        path.remote.len = sizeof from->v6;
    } else {
        path.remote.u.v4 = from->v4;
        path.remote.len = sizeof from->v4;
    }
    cb->on_datagram(cb->user, buf, len, &path, flags);
}

static unsigned receive(void *self, const dxpu_udp_callbacks *cb)
{
    dxpu_udp_callbacks copy = *cb; /* on_datagram() takes it as its user, which is not const */
    return dxpu_xdp_receive(self, on_datagram, &copy);
}

const char *bypass_config(const char *text, const dxpu_udp *u, dxpu_xdp_config *cfg)
{
    dxpu_xdp_config_default(cfg);
    cfg->sockets = u ? dxpu_udp_sockets(u) : 0;
    for (unsigned i = 0; i < cfg->sockets; i++)
        bypass_address(dxpu_udp_local(u, i), &cfg->local[i]);
    return dxpu_xdp_parse_option(text, cfg);
}

dxpu_xdp *bypass_open(dxpu_udp *u, const char *text, bool ecn_capable, unsigned loop,
                      unsigned loops, dxpu_xdp *beside)
{
    dxpu_xdp_config cfg;
    dxpu_udp_bypass b;
    dxpu_xdp *x = NULL;
    const char *why = bypass_config(text, u, &cfg);
    cfg.ecn_capable = ecn_capable;
    cfg.loop = loop;
    cfg.loops = loops;
    cfg.beside = beside;
    errno = EINVAL;
    if (!why)
        x = dxpu_xdp_open(&cfg, &why);
    if (!x) {
        log_error("--af-xdp %s: %s (%s)", text, why, strerror(errno));
        return NULL;
    }
    memset(&b, 0, sizeof b);
    b.self = x;
    b.fds = dxpu_xdp_queues(x);
    for (unsigned i = 0; i < b.fds; i++)
        b.fd[i] = dxpu_xdp_fd(x, i);
    b.datagram_bytes = DXPU_XDP_DATAGRAM_MAX;
    b.room = room;
    b.commit = commit;
    b.flush = flush;
    b.waits = waits;
    b.receive = receive;
    if (dxpu_udp_use(u, &b)) {
        log_error("--af-xdp %s: libevent refuses the socket", text);
        dxpu_xdp_close(x);
        return NULL;
    }
    log_note("AF_XDP on %s: %s", cfg.interface, dxpu_xdp_mode(x));
    return x;
}

void bypass_report(dxpu_xdp *x, report *r)
{
    const dxpu_xdp_counters *c = dxpu_xdp_count(x);
    const char *name;
    report_open(r, "af_xdp");
    report_text(r, "mode", dxpu_xdp_mode(x));
    for (unsigned i = 0; (name = dxpu_xdp_counter_name(i)) != NULL; i++)
        report_number(r, name, dxpu_xdp_counter_value(c, i));
    report_close(r);
}
