/* control.c - see control.h
   SPDX-License-Identifier: MIT */
#include "control.h"
#include "fabric.h"

#include <errno.h>
#include <stdlib.h>

struct control {
    requests *requests;
    dxpu_tcp_listener *listener;
};

static void *on_opened(void *user, dxpu_tcp_conn *conn)
{
    (void)conn;
    return requests_peer_new(((control *)user)->requests, NULL, NULL);
}

static void on_bytes(void *context, dxpu_tcp_conn *conn, dxpu_bytes in)
{
    (void)requests_bytes(context, conn, in);
}

static void on_closed(void *context, dxpu_tcp_conn *conn, const char *why)
{
    (void)conn;
    (void)why;
    requests_peer_free(context);
}

control *control_open(struct event_base *base, const char *at, unsigned further, requests *r)
{
    dxpu_tcp_callbacks cb = { NULL, on_opened, on_bytes, on_closed };
    const char *program = requests_proxy(r)->name;
    dxpu_tcp_settings set;
    dxpu_udp_address local;
    char text[DXPU_UDP_TEXT_BYTES];
    control *o;
    const char *why = dxpu_tcp_parse(at, &local);
    if (!why && !fabric_port_further(&local, further))
        why = "there is no port so high";
    errno = 0;
    o = why ? NULL : calloc(1, sizeof *o);
    if (o) {
        cb.user = o;
        o->requests = r;
        dxpu_tcp_settings_default(&set);
        o->listener = dxpu_tcp_listen(base, &local, &set, &cb, &why);
    }
    if (!o || !o->listener) {
        fprintf(stderr, "%s: --control %s: %s%s%s\n", program, at, why ? why : "out of memory",
                errno ? ": " : "", errno ? strerror(errno) : "");
        free(o);
        return NULL;
    }
    fprintf(stderr, "%s: control port %s\n", program,
            dxpu_udp_print(dxpu_tcp_local(o->listener), text));
    return o;
}

void control_close(control *c)
{
    if (!c)
        return;
    dxpu_tcp_unlisten(c->listener);
    free(c);
}

void control_report(const control *c, const requests *q, report *r)
{
    if (!q)
        return;
    report_open(r, "control");
    if (c) {
        report_number(r, "connections", dxpu_tcp_accepted(c->listener));
        report_number(r, "displaced", dxpu_tcp_displaced(c->listener));
    }
    requests_report(q, r);
    report_close(r);
}
