/* Fuzz target: QMP of a hostile virtual machine monitor, and a keeper that was taken over.

   Messages of QEMU, as they should be or anything; views of slots; time.  Whatever they say, a
   function with MSI-X is never removed (V-48), a device that is to leave is let go once and in time
   (V-47), and there is always something to wait for: none makes the process spin.
   libFuzzer: -max_len=2048 */
#include "quiet.h"

#include "input.h"
#include "plug.h"

#include <stdio.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

enum { SLOTS = 3, COMMANDS_MAX = 40000 };

static plug p;
static uint64_t now, leaving_since[SLOTS];
static unsigned last_id, commands;
static bool was_let_go[SLOTS];
static bool has_msix[SLOTS]; /* of the function that QEMU has, as far as has been said */

static void on_send(void *user, const char *text)
{
    const char *id = strstr(text, "\"id\":"), *name = strstr(text, "dxpu-p");
    (void)user;
    must(++commands < COMMANDS_MAX);
    for (; id; id = strstr(id + 5, "\"id\":")) {
        if (id[5] != '"')
            last_id = (unsigned)strtoul(id + 5, NULL, 10);
    }
    if (strstr(text, "device_del")) {
        unsigned n = (unsigned)(name[6] - '0');
        must(n >= 1 && n <= SLOTS && name[7] == '"' && !has_msix[n - 1]);
    }
    if (strstr(text, "device_add")) {
        unsigned n = (unsigned)(name[6] - '0');
        must(n >= 1 && n <= SLOTS && (name[7] == 'x') == p.slot[n - 1].view.msix);
        has_msix[n - 1] = p.slot[n - 1].view.msix;
    }
}

static void on_removed(void *user, unsigned slot)
{
    (void)user;
    must(slot >= 1 && slot <= SLOTS && p.slot[slot - 1].view.leaving && !was_let_go[slot - 1]);
    was_let_go[slot - 1] = true;
}

static void hear_bytes(const char *text, size_t bytes)
{
    (void)plug_hear(&p, text, bytes, now);
    for (unsigned i = 0; i < SLOTS; i++)
        has_msix[i] &= p.slot[i].vm != PLUG_VM_ABSENT;
}

static void hear(const char *text)
{
    hear_bytes(text, strlen(text));
}

/* A message as QEMU makes it. */
static void hear_good(input *in)
{
    static const char *const events[] = { "DEVICE_DELETED", "DEVICE_UNPLUG_GUEST_ERROR", "RESUME",
                                          "MIGRATION" };
    static const char *const values[] = { "{}", "[]", "{\"status\": \"running\"}",
                                          "{\"status\": \"inmigrate\"}",
                                          "[{\"name\": \"dxpu-p1\"}, {\"name\": \"dxpu-p3x\"}]" };
    uint8_t how = next(in);
    unsigned id = how & 0x40 ? next(in) * 5u : last_id;
    char text[200];
    switch (how & 3) {
    case 0:
        hear("{\"QMP\": {\"version\": {\"qemu\": {\"major\": 11, \"minor\": 1, \"micro\": 3}}}}");
        return;
    case 1:
        snprintf(text, sizeof text, "{\"event\": \"%s\", \"data\": {\"%s\": \"%s%u%s\"}}",
                 events[how >> 2 & 3], how & 0x20 ? "status" : "device",
                 how & 0x20 ? "setup" : "dxpu-p", how >> 4 & 3, how & 0x80 ? "x" : "");
        break;
    case 2:
        snprintf(text, sizeof text, "{\"return\": %s, \"id\": %u}", values[(how >> 2 & 7) % 5], id);
        break;
    default:
        snprintf(text, sizeof text,
                 "{\"error\": {\"class\": \"%s\", \"desc\": \"no\"}, \"id\": %u}",
                 how & 0x10 ? "DeviceNotFound" : "GenericError", id);
        break;
    }
    hear(text);
}

static void hear_any(input *in)
{
    size_t bytes = next(in);
    const uint8_t *text = next_piece(in, &bytes);
    hear_bytes((const char *)text, bytes);
}

static void take_look(input *in)
{
    uint8_t how = next(in);
    unsigned slot = how & 3;
    const plug_view v = { next(in) % 6, how & 4, how & 8 };
    if (slot >= 1 && v.state <= PLUG_LOST) { /* else it is not taken */
        if (!v.leaving)
            was_let_go[slot - 1] = false;
        if (v.leaving && !p.slot[slot - 1].view.leaving)
            leaving_since[slot - 1] = now;
    }
    if (slot >= 1 && v.state == PLUG_USED && p.slot[slot - 1].vm != PLUG_VM_ABSENT)
        has_msix[slot - 1] |= v.msix;
    plug_look(&p, slot, v, now);
}

static void wait_for(input *in)
{
    uint64_t until = plug_next_ns(&p), step = next(in) * (uint64_t)500000000;
    now = next(in) & 1 && until != UINT64_MAX ? until : now + step;
    plug_tick(&p, now);
    for (unsigned i = 0; i < SLOTS; i++)
        must(!p.slot[i].view.leaving || was_let_go[i] ||
             now < leaving_since[i] + PLUG_WAIT_MS * 1000000ull);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static plug_settings set;
    input in = { data, size };
    must(plug_parse("q,bus=p%u", &set) == NULL);
    plug_init(&p, &set, SLOTS, "/vm");
    p.send = on_send;
    p.removed = on_removed;
    memset(was_let_go, 0, sizeof was_let_go);
    memset(has_msix, 0, sizeof has_msix);
    now = (uint64_t)1 << 40;
    last_id = commands = 0;
    while (in.left) {
        switch (next(&in) % 8) {
        case 0:
            plug_open(&p);
            break;
        case 1:
            plug_lost(&p, now);
            break;
        case 2:
            hear_any(&in);
            break;
        case 3:
        case 4:
            take_look(&in);
            break;
        case 5:
            wait_for(&in);
            break;
        default:
            hear_good(&in);
            break;
        }
        plug_tick(&p, now);
        must(plug_next_ns(&p) > now);
    }
    return 0;
}
