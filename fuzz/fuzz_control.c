/* Fuzz target: a stream of control messages.  The first byte says into what parts it is cut, then
   come its bytes.  A second stream gets them at once: both see the same messages.  What decodes is
   encoded and decoded again, and stays what it is; slots of a status never lead outside of it.
   libFuzzer: -max_len=2048 */
#include <stdlib.h>
#include "dxpu_control.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

enum { ROOM = DXPU_CONTROL_HEADER_BYTES + 2048 };

static void must(bool holds)
{
    if (!holds)
        abort();
}

static void check_slots(const dxpu_control_status *st)
{
    dxpu_bytes rest = st->entries;
    dxpu_control_slot s, back;
    unsigned n = 0;
    while (dxpu_control_slot_next(st, &rest, &s)) {
        uint8_t bytes[DXPU_CONTROL_SLOT_BYTES];
        dxpu_control_status own = *st;
        dxpu_bytes one = { bytes, sizeof bytes };
        own.entry_bytes = sizeof bytes;
        dxpu_control_slot_encode(&s, bytes);
        must(dxpu_control_slot_next(&own, &one, &back));
        must(memcmp(&s, &back, sizeof s) == 0);
        must(strlen(s.device) < sizeof s.device && strlen(s.note) < sizeof s.note);
        n++;
    }
    must(n == st->count && rest.len == 0);
}

static void check_devices(const dxpu_control_register *r)
{
    dxpu_bytes rest = r->entries;
    dxpu_control_device d, back;
    unsigned n = 0;
    while (dxpu_control_device_next(r, &rest, &d)) {
        uint8_t bytes[DXPU_CONTROL_DEVICE_BYTES];
        dxpu_control_register own = *r;
        dxpu_bytes one = { bytes, sizeof bytes };
        own.entry_bytes = sizeof bytes;
        dxpu_control_device_encode(&d, bytes);
        must(dxpu_control_device_next(&own, &one, &back));
        must(memcmp(&d, &back, sizeof d) == 0);
        must(strlen(d.model) < sizeof d.model && strlen(d.serial) < sizeof d.serial);
        n++;
    }
    must(n == r->count && rest.len == 0);
    must(r->paths <= DXPU_CONTROL_PATHS_MAX);
}

static void check(const dxpu_control_frame *f)
{
    uint8_t first[ROOM], second[ROOM];
    dxpu_control m, back;
    dxpu_control_frame again = *f;
    size_t len = 0, len2 = 0;
    if (dxpu_control_decode(f, &m) != DXPU_OK)
        return;
    must(m.type == f->type && m.request == f->request);
    if (m.type == DXPU_CONTROL_STATUS)
        check_slots(&m.u.status);
    if (m.type == DXPU_CONTROL_REGISTER)
        check_devices(&m.u.reg);
    if (m.type == DXPU_CONTROL_PICTURE) /* what a reader copies lies in the body and the picture */
        must(m.u.picture.png.len && m.u.picture.png.len <= f->body.len &&
             m.u.picture.offset + m.u.picture.png.len <= m.u.picture.total);
    must(dxpu_control_encode(&m, first, sizeof first, &len) == DXPU_OK);
    must(len <= DXPU_CONTROL_HEADER_BYTES + f->body.len);
    again.body.ptr = first + DXPU_CONTROL_HEADER_BYTES;
    again.body.len = len - DXPU_CONTROL_HEADER_BYTES;
    must(dxpu_control_decode(&again, &back) == DXPU_OK);
    must(dxpu_control_encode(&back, second, sizeof second, &len2) == DXPU_OK);
    must(len == len2 && memcmp(first, second, len) == 0);
}

/* Messages of the same stream, taken at once. */
static unsigned whole(const uint8_t *data, size_t size, int *end)
{
    static uint8_t room[ROOM];
    dxpu_control_stream s;
    dxpu_control_frame f;
    dxpu_bytes in = { data, size };
    unsigned n = 0;
    must(dxpu_control_stream_init(&s, room, sizeof room) == DXPU_OK);
    while ((*end = dxpu_control_take(&s, &in, &f)) == DXPU_OK)
        n++;
    return n;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static uint8_t room[ROOM];
    dxpu_control_stream s;
    dxpu_control_frame f;
    size_t part;
    unsigned n = 0, expected;
    int rc = DXPU_E_AGAIN, end;
    if (size < 1)
        return 0;
    part = data[0] % 64 + 1u;
    expected = whole(data + 1, size - 1, &end);
    must(dxpu_control_stream_init(&s, room, sizeof room) == DXPU_OK);
    for (size_t at = 1; at < size && rc == DXPU_E_AGAIN; at += part) {
        dxpu_bytes in = { data + at, part < size - at ? part : size - at };
        while ((rc = dxpu_control_take(&s, &in, &f)) == DXPU_OK) {
            n++;
            check(&f);
        }
        must(rc != DXPU_E_AGAIN || in.len == 0);
    }
    must(n == expected && rc == end);
    return 0;
}
