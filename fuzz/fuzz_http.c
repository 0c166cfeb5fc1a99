/* Fuzz target: any bytes through the manager's reader of HTTP requests.
   The first byte says how large the pieces are in which the rest arrives; whole, it is read the
   same. */
#ifndef _POSIX_C_SOURCE
#define _POSIX_C_SOURCE 200809L
#endif
#include "examples/manager/api_http.c"
#include <stdlib.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

enum { SEEN = 4 };

typedef struct seen {
    unsigned requests;
    int last; /* HTTP_MORE, or the status of a refusal */
    http_method method[SEEN];
    size_t body_bytes[SEEN], texts[SEEN];
} seen;

static void must(bool holds)
{
    if (!holds)
        abort();
}

/* All texts are within their bounds; a number that depends on them. */
static size_t texts_of(const http_request *q)
{
    size_t sum = strlen(q->path), decoded = 0;
    for (unsigned i = 0; i < q->segments && i < HTTP_SEGMENTS_MAX; i++)
        decoded += strlen(q->segment[i]) + 1;
    for (unsigned i = 0; i < q->params; i++)
        decoded += strlen(q->param[i].name) + 1 + strlen(q->param[i].value);
    must(decoded <= sizeof q->decoded);
    for (unsigned i = 0; i < HTTP_FIELDS_END; i++)
        sum = sum * 31 + (q->field[i] ? strlen(q->field[i]) : 7);
    (void)http_accepts(q->field[HTTP_FIELD_ACCEPT], "application/json");
    (void)http_is_type(q->field[HTTP_FIELD_CONTENT_TYPE], "application/json");
    if (q->field[HTTP_FIELD_HOST])
        (void)http_is_loopback(q->field[HTTP_FIELD_HOST]);
    for (size_t i = 0; i < q->body_bytes; i++)
        sum = sum * 31 + (unsigned char)q->body[i];
    return sum * 31 + decoded;
}

static void read_pieces(char *room, const uint8_t *data, size_t size, size_t piece, seen *out)
{
    http_reader r;
    http_begin(&r, room);
    memset(out, 0, sizeof *out);
    for (size_t at = 0, n; at < size && out->last == HTTP_MORE; at += n) {
        int rc = HTTP_COMPLETE;
        n = size - at < piece ? size - at : piece;
        if (!http_put(&r, data + at, n))
            break;
        while (r.len && (rc = http_read(&r)) == HTTP_COMPLETE) {
            unsigned i = out->requests++ % SEEN;
            must(r.request.method < HTTP_METHODS_END && r.raw <= r.len);
            must(r.request.body_bytes <= HTTP_BODY_MAX_BYTES);
            out->method[i] = r.request.method;
            out->body_bytes[i] = r.request.body_bytes;
            out->texts[i] = texts_of(&r.request);
            http_next(&r);
        }
        out->last = rc == HTTP_COMPLETE ? HTTP_MORE : rc;
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static char room[HTTP_ROOM_BYTES];
    seen whole, pieces;
    if (size < 2 || size > HTTP_HEAD_MAX_BYTES)
        return 0;
    read_pieces(room, data + 1, size - 1, size, &whole);
    read_pieces(room, data + 1, size - 1, 1u + data[0], &pieces);
    must(whole.requests == pieces.requests && whole.last == pieces.last);
    for (unsigned i = 0; i < SEEN; i++) {
        must(whole.method[i] == pieces.method[i] && whole.texts[i] == pieces.texts[i] &&
             whole.body_bytes[i] == pieces.body_bytes[i]);
    }
    must(whole.last == HTTP_MORE || strcmp(http_reason((unsigned)whole.last), "Unknown") != 0);
    return 0;
}
