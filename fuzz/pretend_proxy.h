/* pretend_proxy.h - a proxy's control port, and the loop and the files of its client
   SPDX-License-Identifier: MIT

   Include before the parts that use it.  To each question come messages of the input: a byte how,
   one of the type, two of the length, low one first, and the body. */
#ifndef PRETEND_PROXY_H_INCLUDED
#define PRETEND_PROXY_H_INCLUDED

#include "secure_stream.h"
#include "pretend_terminal.h"

enum {
    PROXY_LATE = 0x0f,    /* tenths of a second before it comes */
    PROXY_STRANGE = 0x10, /* it answers another question */
    PROXY_BARE = 0x20,    /* no head: the body is all that comes */
    PROXY_MORE = 0x40,    /* another one comes with it */
    PROXY_END = 0x80      /* the connection ends behind it */
};

static struct proxy {
    input *in;
    secure_callbacks cb;
    void *context; /* of the connection; NULL: there is none */
    bool refuses, asked;
    uint32_t request;
    unsigned answered;
    size_t filed; /* bytes of files */
    uint64_t timer_ns;
    char conn; /* its address is the connection's */
} proxy;

static secure_conn *proxy_conn(void)
{
    return (secure_conn *)(void *)&proxy.conn;
}

static void proxy_begin(input *in, bool refuses)
{
    memset(&proxy, 0, sizeof proxy);
    proxy.in = in;
    proxy.refuses = refuses;
}

static secure_conn *proxy_connect(const secure_callbacks *cb)
{
    proxy.cb = *cb;
    proxy.context = cb->user;
    proxy.asked = true; /* something is to happen */
    return proxy_conn();
}

static void proxy_drop(secure_conn *c, const char *why)
{
    void *context = proxy.context;
    must(c == proxy_conn() && context != NULL); /* no use of one that is no more */
    proxy.context = NULL;
    proxy.cb.closed(context, c, why);
}

static bool proxy_asked(secure_conn *c, const uint8_t *m, size_t len)
{
    must(c == proxy_conn() && proxy.context && len >= DXPU_CONTROL_HEADER_BYTES);
    proxy.request = dxpu_get_be32(m + DXPUI_CTL_REQUEST);
    proxy.asked = true;
    return true;
}

/* One message to where there is room for the longest; its length. */
static size_t proxy_message(uint8_t *out, uint8_t how)
{
    uint8_t type = next(proxy.in);
    size_t head = how & PROXY_BARE ? 0 : DXPU_CONTROL_HEADER_BYTES;
    size_t len = next(proxy.in);
    len |= (size_t)next(proxy.in) << 8;
    len = len < proxy.in->left ? len : proxy.in->left;
    memset(out, 0, DXPU_CONTROL_HEADER_BYTES);
    memcpy(out, dxpui_ctl_magic, sizeof dxpui_ctl_magic);
    out[DXPUI_CTL_VERSION] = DXPU_CONTROL_VERSION;
    dxpu_put_be16(out + DXPUI_CTL_TYPE_AT, type & 0x7f);
    out[DXPUI_CTL_TYPE_AT] |= type & 0x80;
    dxpu_put_be32(out + DXPUI_CTL_LENGTH, (uint32_t)len);
    dxpu_put_be32(out + DXPUI_CTL_REQUEST, how & PROXY_STRANGE ? type : proxy.request);
    for (size_t i = 0; i < len; i++)
        out[head + i] = next(proxy.in);
    return head + len;
}

/* What the proxy says to a question. */
static void proxy_answer(void)
{
    static uint8_t out[DXPU_CONTROL_HEADER_BYTES + 65536];
    uint8_t how;
    do {
        uint8_t *copy;
        dxpu_bytes bytes;
        if (!proxy.in->left)
            break;
        how = next(proxy.in);
        bytes.len = proxy_message(out, how);
        bytes.ptr = copy = malloc(bytes.len ? bytes.len : 1);
        must(copy != NULL);
        memcpy(copy, out, bytes.len);
        pretended.now_ns += (how & PROXY_LATE) * 100000000ull;
        proxy.answered++;
        proxy.cb.bytes(proxy.context, proxy_conn(), bytes);
        free(copy);
        if (how & PROXY_END && proxy.context)
            proxy_drop(proxy_conn(), "closed by the peer");
    } while (proxy.context && how & PROXY_MORE);
}

/* The loop, until something has happened. */
static int proxy_dispatch(void)
{
    bool asked = proxy.asked;
    proxy.asked = false;
    if (!proxy.context || !asked) {
        pretended.now_ns = proxy.timer_ns > pretended.now_ns ? proxy.timer_ns : pretended.now_ns;
    } else if (!proxy.request && !proxy.refuses) {
        proxy.context = proxy.cb.opened(proxy.cb.user, proxy_conn());
        must(proxy.context != NULL);
    } else if (!proxy.request || !proxy.in->left) {
        proxy_drop(proxy_conn(), "closed by the peer");
    } else {
        proxy_answer();
    }
    return 0;
}

/* How long the loop would wait. */
static int proxy_timer(const struct timeval *tv)
{
    proxy.timer_ns =
        pretended.now_ns + (uint64_t)tv->tv_sec * 1000000000u + (uint64_t)tv->tv_usec * 1000u;
    return 0;
}

static int proxy_no_file(struct stat *there)
{
    memset(there, 0, sizeof *there);
    errno = ENOENT;
    return -1;
}

static bool proxy_write(const void *bytes, size_t len)
{
    must(len >= 4 && memcmp(bytes, "\x89PNG", 4) == 0);
    proxy.filed += len;
    return true;
}

#define secure_connect(base, to, set, own, server, cb, why)                                        \
    ((void)(base), (void)(to), (void)(set), (void)(why), proxy_connect(cb))
#define secure_send(c, m, len)        proxy_asked(c, m, len)
#define secure_touch(c)               ((void)(c))
#define secure_drop(c, why)           proxy_drop(c, why)
#define event_base_new()              ((struct event_base *)(void *)&proxy)
#define event_base_free(base)         ((void)0)
#define event_base_loopbreak(base)    (0)
#define event_base_loopexit(base, tv) proxy_timer(tv)
#define event_base_dispatch(base)     proxy_dispatch()
#define dxpu_udp_now_ns()             (pretended.now_ns)
#define stat(path, there)             ((void)(path), proxy_no_file(there))
#define mkstemp(path)                 ((void)(path), (int)PRETEND_FILE)
#define fchmod(fd, mode)              ((void)(fd), (void)(mode), 0)
#define close(fd)                     ((void)(fd), 0)
#define rename(from, to)              ((void)(from), (void)(to), 0)
#define unlink(path)                  ((void)(path))
#define durable_write(fd, bytes, len) ((void)(fd), proxy_write(bytes, len))

#endif /* PRETEND_PROXY_H_INCLUDED */
