/* control.c - see control.h
   SPDX-License-Identifier: MIT */
#include "control_internal.h"
#include "log.h"
#include "fabric.h"
#include "sandbox.h"

#include <errno.h>
#include <stdlib.h>

static void *on_opened(void *user, secure_conn *conn)
{
    (void)conn;
    return requests_peer_new(((control *)user)->requests, NULL, NULL);
}

void control_on_bytes(void *context, secure_conn *conn, dxpu_bytes in)
{
    (void)requests_bytes(context, conn, in);
}

void control_on_closed(void *context, secure_conn *conn, const char *why)
{
    (void)conn;
    (void)why;
    requests_peer_free(context);
}

const char *control_check(const char *at, unsigned further, const keys_settings *k)
{
    static char text[200];
    dxpu_udp_address local;
    const char *why = at ? dxpu_tcp_parse(at, &local) : NULL;
    if (!at)
        return NULL;
    if (!why)
        why = keys_check_addresses(k, &local, 1);
    if (!why && !fabric_port_further(&local, further))
        why = "the port must be lower; each guest uses the next one";
    snprintf(text, sizeof text, "--control: %s", why ? why : "");
    return why ? text : NULL;
}

control *control_open(struct event_base *base, const char *at, unsigned further, keys *k,
                      requests *r)
{
    secure_callbacks cb = { NULL, on_opened, control_on_bytes, control_on_closed };
    secure_settings set = { .keys = k, .may = KEYS_CONTROL };
    dxpu_udp_address local;
    char text[DXPU_UDP_TEXT_BYTES];
    control *o;
    const char *why = dxpu_tcp_parse(at, &local);
    (void)fabric_port_further(&local, further); /* see control_check() */
    errno = 0;
    o = why ? NULL : calloc(1, sizeof *o);
    if (o) {
        cb.user = o;
        o->requests = r;
        dxpu_tcp_settings_default(&set.tcp);
        o->listener = secure_listen(base, &local, &set, &cb, &why);
    }
    if (!o || !o->listener) {
        log_error("--control %s: %s%s%s%s", at, why ? why : "out of memory", sandbox_hint(errno),
                  errno ? ": " : "", errno ? strerror(errno) : "");
        free(o);
        return NULL;
    }
    log_note("control port %s", dxpu_udp_print(secure_local(o->listener), text));
    return o;
}

void control_recheck(control *c)
{
    if (c)
        secure_recheck(c->listener);
}

void control_close(control *c)
{
    if (!c)
        return;
    secure_unlisten(c->listener);
    free(c);
}

void control_report(const control *c, const requests *q, report *r)
{
    if (!q)
        return;
    report_open(r, "control");
    if (c)
        secure_report(c->listener, r);
    requests_report(q, r);
    report_close(r);
}
