/* Fuzz target: the configuration space of a hostile device, as direct attach shows it.

   The device says what it likes when it is read first, and something else whenever it is read
   again.  What a virtual machine monitor finds is what one can take that trusts it: lists that end,
   each of kinds that it interprets once and with room, sizes that are powers of two, interrupts
   where there is a BAR.  Writes of a guest change none of that.
   libFuzzer: -max_len=2048 */
#include "dxpu.h"
#include "input.h"
#include "shadow.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

enum { NEXT = 0x34, LEAST_EXTENDED = 8 };

/* Mostly zeros, with a header and lists that may lead to one another. */
static void make_image(input *in, uint8_t image[SHADOW_BYTES])
{
    unsigned pieces = next(in) % 64;
    memset(image, 0, SHADOW_BYTES);
    image[0x06] = 0x10;
    while (pieces--) {
        unsigned how = next(in), at = next(in), bytes = next(in) % 16;
        at = how & 1 ? at * 4u : 0x100u + at * 4u + (how & 0x18) * 128u;
        for (unsigned i = 0; i <= bytes && at + i < SHADOW_BYTES; i++)
            image[at + i] = next(in);
    }
}

static void make_sizes(input *in, uint32_t sized[SHADOW_BARS])
{
    for (unsigned i = 0; i < SHADOW_BARS; i++) {
        unsigned how = next(in);
        sized[i] = how & 0x80 ? next32(in) : (uint32_t)(~(uint64_t)0 << (how & 0x1f)) | how >> 5;
    }
}

/* What is read of a device that answers with `noise` by now. */
static uint32_t seen(const shadow *s, unsigned at, unsigned bytes, uint8_t noise)
{
    uint8_t data[4] = { 0 };
    memset(data, noise, bytes);
    shadow_answer(s, at, data, bytes);
    return dxpu_get_le32(data);
}

static unsigned room(const bool start[SHADOW_BYTES], unsigned at, unsigned end)
{
    unsigned to = at + 1;
    while (to < end && !start[to])
        to++;
    return to - at;
}

static void check_msi(const shadow *s, unsigned at, unsigned room_bytes, uint8_t noise)
{
    uint32_t control = seen(s, at + 2, 2, noise);
    must((control >> 1 & 7) <= 5);
    must(room_bytes >= (control & 0x80 ? 14u : 10u) + (control & 0x100 ? 10u : 0u));
}

static void check_msix(const shadow *s, unsigned at, unsigned room_bytes, uint8_t noise)
{
    uint64_t vectors = (seen(s, at + 2, 2, noise) & 0x7ff) + 1;
    must(room_bytes >= 12);
    for (unsigned i = 0; i < 2; i++) {
        uint32_t where = seen(s, at + 4 + 4 * i, 4, noise);
        must((where & 7) < SHADOW_BARS);
        must((where & ~7u) + (i ? (vectors + 63) / 64 * 8 : vectors * 16) <=
             s->bar[where & 7].bytes);
    }
}

static void check_list(const shadow *s, uint8_t noise)
{
    bool start[SHADOW_BYTES] = { false }, kind[256] = { false };
    unsigned at;
    for (at = seen(s, NEXT, 1, noise); at; at = seen(s, at + 1, 1, noise)) {
        must(at >= 0x40 && at % 4 == 0 && !start[at]);
        start[at] = true;
    }
    for (at = seen(s, NEXT, 1, noise); at; at = seen(s, at + 1, 1, noise)) {
        unsigned id = seen(s, at, 1, noise), bytes = room(start, at, 0x100);
        must(!(kind[id] && (id == 1 || id == 5 || id == 0x10 || id == 0x11)));
        kind[id] = true;
        if (id == 5)
            check_msi(s, at, bytes, noise);
        if (id == 0x11)
            check_msix(s, at, bytes, noise);
    }
}

static void check_extended(const shadow *s, uint8_t noise)
{
    bool start[SHADOW_BYTES] = { false };
    unsigned at;
    for (at = 0x100; at; at = seen(s, at, 4, noise) >> 20) {
        must(at >= 0x100 && at % 4 == 0 && !start[at]);
        start[at] = true;
    }
    for (at = 0x100; at; at = seen(s, at, 4, noise) >> 20)
        must(!(seen(s, at, 4, noise) & 0xffff) || room(start, at, SHADOW_BYTES) >= LEAST_EXTENDED);
}

static void check_all(const shadow *s, uint8_t noise)
{
    uint64_t end = 0;
    for (unsigned i = 0; i < SHADOW_BARS; i++) {
        const shadow_bar *b = &s->bar[i];
        must((b->bytes & (b->bytes - 1)) == 0 && (!b->bytes || b->address % b->bytes == 0));
        must(b->address + b->bytes >= b->address);
        end += b->bytes != 0;
    }
    must(end <= SHADOW_BARS && seen(s, 0x3d, 1, noise) <= 1 && seen(s, 0x0e, 1, noise) == 0);
    must(s->messages <= SHADOW_MESSAGES_MAX && s->vectors <= 2048);
    check_list(s, noise);
    check_extended(s, noise);
}

static void use(shadow *s, input *in)
{
    while (in->left) {
        uint8_t how = next(in), data[4];
        uint32_t at = (next(in) * 4u + (how & 3u) * 1024u) % SHADOW_BYTES, vector;
        shadow_write w[SHADOW_WRITES_MAX];
        bool msix;
        for (unsigned i = 0; i < 4; i++)
            data[i] = next(in);
        if (how & 0x80)
            shadow_reset(s);
        if (shadow_take(s, at, data, 4).interrupts)
            must(shadow_interrupts(s, w) < SHADOW_WRITES_MAX);
        must(shadow_setup(s, w) < SHADOW_WRITES_MAX);
        if (shadow_vector(s, next32(in) & 0x1000 ? SHADOW_MSI_ADDRESS : SHADOW_MSIX_ADDRESS,
                          next32(in), &msix, &vector))
            must(vector < (msix ? s->vectors : s->messages));
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static uint8_t image[SHADOW_BYTES];
    uint32_t sized[SHADOW_BARS];
    input in = { data, size };
    unsigned interrupts = next(&in) % 3;
    uint8_t noise = next(&in);
    shadow s;
    make_sizes(&in, sized);
    make_image(&in, image);
    if (shadow_init(&s, image, sized, interrupts))
        return 0;
    check_all(&s, noise);
    use(&s, &in);
    check_all(&s, (uint8_t)~noise);
    return 0;
}
