/* dxpu_vfio_user_stream.c - see dxpu_vfio_user_stream.h
   SPDX-License-Identifier: MIT */
#define _GNU_SOURCE
#include "dxpu_vfio_user_stream.h"

#include <errno.h>
#include <stddef.h>
#include <stdlib.h>
#include <sys/socket.h>

/* ==== capabilities ============================================================================ */

/* Just enough JSON: objects, numbers, booleans; what is not asked for is skipped. */
typedef struct json {
    const char *p, *end;
} json;

static bool json_is(json *j, char c)
{
    while (j->p < j->end && (*j->p == ' ' || *j->p == '\t' || *j->p == '\n' || *j->p == '\r'))
        j->p++;
    if (j->p == j->end || *j->p != c)
        return false;
    j->p++;
    return true;
}

static bool json_string(json *j, dxpu_bytes *out)
{
    if (!json_is(j, '"'))
        return false;
    out->ptr = (const uint8_t *)j->p;
    for (; j->p < j->end && *j->p != '"'; j->p++) {
        if (*j->p == '\\' && ++j->p == j->end)
            return false;
    }
    if (j->p == j->end)
        return false;
    out->len = (size_t)(j->p++ - (const char *)out->ptr);
    return true;
}

/* A number, true, false, null: the characters of it. */
static bool json_word(json *j, dxpu_bytes *out)
{
    const char *start;
    while (j->p < j->end && (*j->p == ' ' || *j->p == '\t' || *j->p == '\n' || *j->p == '\r'))
        j->p++;
    start = j->p;
    while (j->p < j->end && ((*j->p >= '0' && *j->p <= '9') || (*j->p >= 'a' && *j->p <= 'z') ||
                             *j->p == '-' || *j->p == '+' || *j->p == '.' || *j->p == 'E'))
        j->p++;
    out->ptr = (const uint8_t *)start;
    out->len = (size_t)(j->p - start);
    return out->len > 0;
}

/* Any value, to `depth` levels of nesting. */
static bool json_skip(json *j, int depth)
{
    dxpu_bytes b;
    char close;
    if (json_is(j, '{'))
        close = '}';
    else if (json_is(j, '['))
        close = ']';
    else
        return (j->p < j->end && *j->p == '"') ? json_string(j, &b) : json_word(j, &b);
    if (depth == 0)
        return false;
    if (json_is(j, close))
        return true;
    do {
        if (close == '}' && (!json_string(j, &b) || !json_is(j, ':')))
            return false;
        if (!json_skip(j, depth - 1))
            return false;
    } while (json_is(j, ','));
    return json_is(j, close);
}

static bool bytes_are(dxpu_bytes b, const char *text)
{
    return b.len == strlen(text) && memcmp(b.ptr, text, b.len) == 0;
}

static bool json_number(dxpu_bytes b, uint64_t *out)
{
    uint64_t v = 0;
    size_t i;
    for (i = 0; i < b.len; i++) {
        uint64_t digit = (uint64_t)(b.ptr[i] - '0');
        if (digit > 9 || v > (UINT64_MAX - digit) / 10)
            return false;
        v = v * 10 + digit;
    }
    *out = v;
    return b.len > 0;
}

/* One member that is used, of the object at `level`. */
static bool json_member(json *j, int level, dxpu_bytes key, vfu_capabilities *caps)
{
    static const struct {
        const char *name;
        int level;
        size_t at; /* of the number in *caps */
    } numbers[] = { { "max_data_xfer_size", 1, offsetof(vfu_capabilities, transfer_bytes) },
                    { "max_msg_fds", 1, offsetof(vfu_capabilities, fds) },
                    { "max_dma_maps", 1, offsetof(vfu_capabilities, dma_maps) },
                    { "fd_index", 2, offsetof(vfu_capabilities, twin_index) } };
    dxpu_bytes value;
    size_t i;
    for (i = 0; i < sizeof numbers / sizeof numbers[0]; i++) {
        if (level == numbers[i].level && bytes_are(key, numbers[i].name)) {
            uint64_t n;
            if (!json_word(j, &value) || !json_number(value, &n))
                return false;
            memcpy((uint8_t *)caps + numbers[i].at, &n, sizeof n);
            return true;
        }
    }
    if (level == 1 && bytes_are(key, "write_multiple")) {
        if (!json_word(j, &value))
            return false;
        caps->write_multiple = bytes_are(value, "true");
        return true;
    }
    if (level == 2 && bytes_are(key, "supported")) {
        if (!json_word(j, &value))
            return false;
        caps->twin = bytes_are(value, "true");
        return true;
    }
    return json_skip(j, 8);
}

/* The members of one object: level 0 is the whole, 1 "capabilities", 2 their "twin_socket". */
static bool json_capabilities(json *j, int level, vfu_capabilities *caps)
{
    static const char *const inner[] = { "capabilities", "twin_socket" };
    if (!json_is(j, '{'))
        return false;
    if (json_is(j, '}'))
        return true;
    do {
        dxpu_bytes key;
        if (!json_string(j, &key) || !json_is(j, ':'))
            return false;
        if (level < 2 && bytes_are(key, inner[level])) {
            if (!json_capabilities(j, level + 1, caps))
                return false;
        } else if (!json_member(j, level, key, caps)) {
            return false;
        }
    } while (json_is(j, ','));
    return json_is(j, '}');
}

bool vfu_capabilities_read(const uint8_t *text, size_t len, vfu_capabilities *caps)
{
    const char *nul = len ? (const char *)memchr(text, 0, len) : NULL;
    json j;
    caps->transfer_bytes = PEER_BYTES;
    caps->fds = 1;
    caps->dma_maps = 65535;
    caps->twin_index = UINT64_MAX;
    caps->write_multiple = caps->twin = false;
    j.p = (const char *)text;
    j.end = nul ? nul : j.p + len;
    return j.p == j.end || json_capabilities(&j, 0, caps);
}

/* ==== input =================================================================================== */

bool vfu_stream_open(vfu_stream *io, size_t largest, size_t queue)
{
    io->in_size = HEADER + ACCESS + largest + READ_AHEAD;
    io->out_size = queue;
    io->in = (uint8_t *)malloc(io->in_size);
    io->out = (uint8_t *)malloc(io->out_size);
    return io->in && io->out;
}

void vfu_stream_free(vfu_stream *io)
{
    free(io->in);
    free(io->out);
    io->in = io->out = NULL;
}

void vfu_stream_clear(vfu_stream *io)
{
    io->in_head = io->in_tail = 0;
    io->out_head = io->out_tail = io->out_sent = 0;
    io->blocked = false;
}

size_t vfu_stream_message(const vfu_stream *io, const char **wrong)
{
    const uint8_t *p = io->in + io->in_head;
    size_t here = io->in_tail - io->in_head;
    uint32_t size;
    if (here < HEADER)
        return 0;
    size = get32(p + 4);
    if (size < HEADER || size > io->in_size - READ_AHEAD) {
        *wrong = "a message of an impossible size arrived";
        return 0;
    }
    if ((get32(p + 8) & TYPE_MASK) > TYPE_REPLY) {
        *wrong = "a message that is neither command nor reply arrived";
        return 0;
    }
    return size <= here ? size : 0;
}

void vfu_stream_close_fds(vfu_stream *io)
{
    unsigned i;
    for (i = 0; i < io->fds_count; i++) {
        if (io->fds[i] >= 0) {
            vfu_closer_close(io->closer, io->fds[i]);
            ++*io->fds_closed;
        }
    }
    io->fds_count = 0;
    io->fds_lost = false;
}

/* Descriptors came with the last read.  The kernel ends a read behind the piece that carried them,
   so they belong to the last message that begins there. */
static void assign_fds(vfu_stream *io)
{
    size_t at = io->in_head;
    while (io->in_tail - at > HEADER) {
        size_t size = get32(io->in + at + 4);
        if (size < HEADER || size >= io->in_tail - at)
            break;
        at += size;
    }
    io->fds_at = at;
}

/* Keep the descriptors of a read; more than a message may bring are closed. */
static void take_fds(vfu_stream *io, const int *fds, unsigned count, bool lost)
{
    unsigned i;
    for (i = 0; i < count; i++) {
        if (io->fds_count < FDS_MAX) {
            io->fds[io->fds_count++] = fds[i];
        } else {
            vfu_closer_close(io->closer, fds[i]);
            ++*io->fds_closed;
            lost = true;
        }
    }
    *io->fds_lost_count += lost;
    io->fds_lost = io->fds_lost || lost;
}

int vfu_stream_read(vfu_stream *io)
{
    int fds[VFU_FDS_MAX];
    unsigned count, had = io->fds_count;
    size_t room;
    bool lost;
    ssize_t n;
    if (io->in_head > 0) {
        memmove(io->in, io->in + io->in_head, io->in_tail - io->in_head);
        io->in_tail -= io->in_head;
        io->fds_at = 0; /* what is left is one unfinished message */
        io->in_head = 0;
    }
    room = io->in_size - io->in_tail;
    if (had || io->fds_lost) { /* the next message's descriptors must not mix with these */
        size_t want = io->in_tail < HEADER ? HEADER : get32(io->in + 4);
        room = want - io->in_tail;
    }
    n = vfu_receive(io->fd, io->in + io->in_tail, room, fds, &count, &lost);
    if (n < 0 && (errno == EAGAIN || errno == EWOULDBLOCK))
        return VFU_NOTHING;
    if (n <= 0)
        return VFU_OVER;
    io->in_tail += (size_t)n;
    take_fds(io, fds, count, lost);
    if (!had && (io->fds_count || io->fds_lost))
        assign_fds(io);
    /* behind descriptors the kernel ends a read though there may be more */
    return count || lost || (size_t)n == room ? VFU_MORE : VFU_ALL;
}

/* ==== output ================================================================================== */

size_t vfu_stream_room(const vfu_stream *io)
{
    return io->out_size - (io->out_tail - io->out_head);
}

uint8_t *vfu_stream_begin(vfu_stream *io, uint16_t id, uint16_t command, size_t size,
                          uint32_t flags)
{
    uint8_t *p;
    if (io->out_size - io->out_tail < size) {
        memmove(io->out, io->out + io->out_head, io->out_tail - io->out_head);
        io->out_tail -= io->out_head;
        io->out_head = 0;
    }
    p = io->out + io->out_tail;
    put16(p, id);
    put16(p + 2, command);
    put32(p + 4, (uint32_t)size);
    put32(p + 8, flags);
    put32(p + 12, 0);
    io->out_tail += size;
    return p + HEADER;
}

/* As send(), with the descriptors of a message that begins there. */
static ssize_t send_piece(const vfu_stream *io, const uint8_t *p, size_t bytes)
{
    union {
        struct cmsghdr align;
        char bytes[CMSG_SPACE(sizeof(int) * FDS_MAX)];
    } control;
    struct msghdr h;
    struct iovec iov;
    int fds[FDS_MAX];
    unsigned count = io->fds_of && io->out_sent == 0 ? io->fds_of(io->user, p, fds) : 0;
    iov.iov_base = (void *)(uintptr_t)p;
    iov.iov_len = bytes;
    memset(&h, 0, sizeof h);
    h.msg_iov = &iov;
    h.msg_iovlen = 1;
    if (count) {
        struct cmsghdr *c;
        memset(&control, 0, sizeof control);
        h.msg_control = control.bytes;
        h.msg_controllen = CMSG_SPACE(sizeof(int) * count);
        c = CMSG_FIRSTHDR(&h);
        c->cmsg_level = SOL_SOCKET;
        c->cmsg_type = SCM_RIGHTS;
        c->cmsg_len = CMSG_LEN(sizeof(int) * count);
        memcpy(CMSG_DATA(c), fds, sizeof(int) * count);
    }
    return sendmsg(io->fd, &h, MSG_NOSIGNAL | MSG_DONTWAIT);
}

/* One message a call: the peer reads a header in one piece, so it must never be split, and the
   kernel never splits the first bytes of a call. */
bool vfu_stream_flush(vfu_stream *io)
{
    io->blocked = false;
    while (io->out_head < io->out_tail) {
        const uint8_t *p = io->out + io->out_head;
        size_t size = get32(p + 4);
        ssize_t n = send_piece(io, p + io->out_sent, size - io->out_sent);
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0 && (errno == EAGAIN || errno == EWOULDBLOCK || errno == ENOBUFS)) {
            io->blocked = true;
            return true;
        }
        if (n < 0)
            return false;
        io->out_sent += (size_t)n;
        if (io->out_sent == size) {
            io->out_head += size;
            io->out_sent = 0;
        }
    }
    io->out_head = io->out_tail = 0;
    return true;
}
