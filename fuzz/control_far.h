/* control_far.h - the far end of a control connection in memory: what it says, with what is wrong
   with it, and how the network cuts it
   SPDX-License-Identifier: MIT */
#ifndef CONTROL_FAR_H_INCLUDED
#define CONTROL_FAR_H_INCLUDED

#include "secure_rig.h"

#include "dxpu_control.h"

enum { FAR_WAIT_BYTES = 4096, FAR_MORE_BYTES = 64 /* behind a message, by twist() */ };

typedef struct far_end {
    secure_conn *conn;       /* first: rig_said() finds by it whose it is */
    dxpu_control_stream own; /* of what came */
    uint8_t room[DXPU_CONTROL_HEADER_BYTES + DXPU_CONTROL_BODY_MAX];
    uint8_t waits[FAR_WAIT_BYTES]; /* said, and not there yet */
    size_t waiting;
} far_end;

/* The target's: these bytes are about to come. */
static void far_comes(far_end *f, const uint8_t *at, size_t len);

static bool far_open(const far_end *f)
{
    return f->conn && !f->conn->over && !f->conn->ended && !f->conn->finishing;
}

/* body_bytes: of the longest message that this target takes for one. */
static inline void far_connect(far_end *f, secure_listener *l, const uint8_t *key,
                               size_t body_bytes)
{
    f->waiting = 0;
    (void)dxpu_control_stream_init(&f->own, f->room, DXPU_CONTROL_HEADER_BYTES + body_bytes);
    rig_connect(l, key, &f->conn);
}

static void far_bring(far_end *f, const uint8_t *at, size_t len)
{
    if (!far_open(f))
        return;
    far_comes(f, at, len);
    rig_bring(f->conn, at, len);
}

/* The given number of waiting bytes arrives; 0: all. */
static void far_flow(far_end *f, size_t len)
{
    uint8_t some[FAR_WAIT_BYTES];
    if (!len || len > f->waiting)
        len = f->waiting;
    memcpy(some, f->waits, len);
    memmove(f->waits, f->waits + len, f->waiting - len);
    f->waiting -= len;
    far_bring(f, some, len);
}

/* cut: 0: all at once; odd: in two pieces; else so much of it, and the rest later. */
static void far_say_bytes(far_end *f, const uint8_t *bytes, size_t len, uint8_t cut)
{
    if (!f->conn || len > sizeof f->waits - f->waiting)
        return;
    memcpy(f->waits + f->waiting, bytes, len);
    f->waiting += len;
    far_flow(f, cut);
    if (cut & 1 && f->waiting)
        far_flow(f, 0);
}

/* A message with something wrong; b has room for FAR_MORE_BYTES.  Its length then. */
static size_t far_twist(input *in, uint8_t how, uint8_t *b, size_t len)
{
    size_t body = len - DXPU_CONTROL_HEADER_BYTES;
    switch (how & 15) {
    case 8: /* another byte in the body */
        if (body)
            b[DXPU_CONTROL_HEADER_BYTES + next(in) % body] ^= (uint8_t)(1 + next(in));
        break;
    case 9:
        b[5] = next(in); /* flags */
        break;
    case 10:
        b[4] = next(in); /* version */
        break;
    case 11:
        b[next(in) % 4] ^= 0x20; /* magic */
        break;
    case 12:
        b[6] ^= 0x80; /* ignorable */
        break;
    case 13: /* it ends before its fields do */
        body = body ? next(in) % body : 0;
        break;
    case 14: /* there is more behind them */
        memset(b + len, 0, FAR_MORE_BYTES);
        body += next(in) % FAR_MORE_BYTES;
        break;
    case 15: /* its length lies */
        b[8 + next(in) % 4] ^= next(in);
        return len;
    default:
        break;
    }
    dxpu_put_be16(b + 10, (uint32_t)body);
    return DXPU_CONTROL_HEADER_BYTES + body;
}

/* in: what is wrong with it, and its cut; NULL: nothing, none.  Unless it has no encoding. */
static void far_say(far_end *f, input *in, const dxpu_control *m)
{
    uint8_t bytes[FAR_WAIT_BYTES + FAR_MORE_BYTES], how = in ? next(in) : 0,
                                                    cut = in ? next(in) : 0;
    size_t len = 0;
    if (dxpu_control_encode(m, bytes, FAR_WAIT_BYTES, &len) != DXPU_OK)
        return;
    far_say_bytes(f, bytes, how ? far_twist(in, how, bytes, len) : len, cut);
}

/* A message of any type, 16 bytes of its body: b[0] to b[3] are in the fields' places. */
static void far_say_type(far_end *f, input *in, unsigned type, uint32_t request)
{
    uint8_t b[DXPU_CONTROL_HEADER_BYTES + 16] = { 'D', 'X', 'C', 'T', DXPU_CONTROL_VERSION };
    dxpu_put_be16(b + 6, type);
    b[11] = 16;
    b[15] = (uint8_t)request;
    b[17] = b[19] = 1; /* some field of each is not 0 */
    far_say_bytes(f, b, sizeof b, next(in));
}

/* Bytes of the input. */
static void far_say_raw(far_end *f, input *in, size_t len)
{
    uint8_t bytes[64];
    len = len < sizeof bytes ? len : sizeof bytes;
    for (size_t i = 0; i < len; i++)
        bytes[i] = next(in);
    far_say_bytes(f, bytes, len, 0);
}

static dxpu_control far_message(unsigned type, uint32_t request)
{
    dxpu_control m;
    memset(&m, 0, sizeof m);
    m.type = (uint16_t)type;
    m.request = request;
    return m;
}

/* The one message that was sent; its views last until the next. */
static dxpu_control far_read(const uint8_t *data, size_t bytes)
{
    static uint8_t room[DXPU_CONTROL_HEADER_BYTES + DXPU_CONTROL_BODY_MAX];
    dxpu_control_stream s;
    dxpu_control_frame f;
    dxpu_control m;
    dxpu_bytes in = { data, bytes };
    (void)dxpu_control_stream_init(&s, room, sizeof room);
    must(dxpu_control_take(&s, &in, &f) == DXPU_OK && !in.len);
    must(dxpu_control_decode(&f, &m) == DXPU_OK);
    return m;
}

/* What the network does with it, and who is behind it. */
static void far_network(far_end *f, unsigned what, unsigned amount)
{
    size_t most = f->conn ? f->conn->listener->set.tcp.send_bytes : 0;
    if (!f->conn)
        return;
    switch (what) {
    case 0:
    case 1:
        rig_eof(f->conn);
        break;
    case 2:
        secure_drop(f->conn, "connection lost");
        break;
    case 3:
        f->conn->deaf = true;
        break;
    case 4: /* it has been so for long: there is room for little more */
        f->conn->deaf = true;
        if (!f->conn->unsent)
            f->conn->stuck_ns = rig_ns;
        f->conn->unsent = most - amount * 32u;
        break;
    case 5:
        f->conn->deaf = false;
        break;
    default:
        far_flow(f, amount);
        break;
    }
}

#endif /* CONTROL_FAR_H_INCLUDED */
