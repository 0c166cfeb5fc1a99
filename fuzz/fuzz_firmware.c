/* Fuzz target: a box in firmware between a host, a network that also says what the input says, and
   a device that does what the input says, descriptors included.  Whatever they do, the device is
   given only TLPs that keep every rule and fit their buffers, and what is sent is an ARP answer or
   a datagram in order.  With keys there are hosts of several owners, liars among them, lists that
   change, and power cuts: a lease stays with the key that opened it (S-95), whose key is off the
   list has no channel (S-96), and each session ends just once.
   libFuzzer: -max_len=3072 */
#include "dxpu_bytes.h"
#include "dxpu_firmware.h"
#include "dxpu_firmware_wire.h"

#include <stdlib.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

enum { BUFFERS = 8, FRAME_BYTES = 1520, TLP_BYTES = 192, MEMORY_BYTES = 512 * 1024, MEM = 8 };
enum {
    OP_ETHERNET, /* bytes from the network */
    OP_DATAGRAM, /* the same in UDP to the box */
    OP_FRAME,    /* the same with the CRC of a frame made right */
    OP_DEVICE,   /* bytes from the device, and what it says of their length */
    OP_TAKE,     /* the device takes one */
    OP_TIME,
    OP_ASTRAY, /* the network's or the device's count */
    OP_HOST,   /* a host dials, or goes on */
    OP_DIALER, /* who dials next, under which epoch; or the one that is there closes */
    OP_LIAR,   /* a frame of the input's under a session's keys */
    OP_LIST,   /* which keys are allowed */
    OP_BOX,    /* it cannot keep leases, or can; closes; has a power cut, and keys or none */
    OPS
};
enum { OWNERS = 3, SESSIONS = DXPU_FW_LINKS + 2, TAG_BYTES = 16, KEY_SUITE = 0x0100 };

static dxpu_fw_ring rings[4];
static uint64_t memory[MEMORY_BYTES / MEM], host_memory[MEMORY_BYTES / MEM];
static dxpu_fw_slot slot;
static dxpu_fw node;
static dxpu_channel host;
static uint64_t now_ns, epoch;
static uint32_t chance;

/* A session of a handshake. */
typedef struct session {
    bool there, taken; /* taken: open() has given it to the box */
    uint8_t owner;     /* 1.. */
    uint32_t id;       /* of its channel at the box */
    uint64_t key, packet;
} session;

static session sessions[SESSIONS];
static bool sealed, full;
static unsigned allowed; /* a bit for each owner */
static uint8_t dialer;
static dxpu_fw_kept kept;

static const dxpu_fw_address host_at = { { 2, 0, 0, 0, 0, 2 }, { 10, 0, 0, 2 }, 40000 };

static void must(bool holds)
{
    if (!holds)
        abort();
}

static uint32_t hook_random(void *user)
{
    (void)user;
    return chance = chance * 1664525u + 1013904223u;
}

static bool hook_reset(void *user, uint16_t number)
{
    (void)user;
    (void)number;
    dxpu_fw_ring_drop(slot.to_device);
    return hook_random(NULL) & 0x100;
}

static uint8_t owner_of(const uint8_t owner[DXPU_FW_OWNER_BYTES])
{
    for (unsigned i = 1; i < DXPU_FW_OWNER_BYTES; i++)
        must(owner[i] == owner[0]);
    must(owner[0] <= OWNERS);
    return owner[0];
}

static bool hook_keep(void *user, uint16_t number, const dxpu_fw_kept *lease)
{
    uint8_t owner = owner_of(lease->owner);
    (void)user;
    must(number == 1 && lease->epoch >= kept.epoch && sealed == (owner != 0));
    must(!owner || allowed >> owner & 1u);
    if (lease->epoch == kept.epoch) /* without keys it is the same lease */
        must(sealed && !owner_of(kept.owner));
    if (!full)
        kept = *lease;
    return !full;
}

static const dxpu_fw_hooks hooks = { hook_random, hook_reset, NULL, hook_keep };

/* -- Keys: a suite whose tags are only hard to guess -- */

static uint64_t mix(uint64_t sum, const uint8_t *bytes, size_t len)
{
    for (size_t i = 0; i < len; i++)
        sum = (sum ^ bytes[i]) * 0x100000001b3u;
    return sum ^ sum >> 29;
}

static void tag_of(const session *s, uint8_t phase, uint64_t nonce, dxpu_bytes header,
                   const uint8_t *body, size_t len, uint8_t tag[TAG_BYTES])
{
    uint64_t sum = mix(mix(s->key + phase, header.ptr, header.len) + nonce, body, len);
    memcpy(tag, &sum, sizeof sum);
    sum = mix(sum, tag, sizeof sum);
    memcpy(tag + sizeof sum, &sum, sizeof sum);
}

static bool key_seal(void *user, uint8_t phase, uint64_t nonce, dxpu_bytes header, uint8_t *body,
                     size_t len)
{
    tag_of(user, phase, nonce, header, body, len, body + len);
    return true;
}

static bool key_open(void *user, uint8_t phase, uint64_t nonce, dxpu_bytes header, uint8_t *body,
                     size_t len)
{
    uint8_t tag[TAG_BYTES];
    tag_of(user, phase, nonce, header, body, len, tag);
    return !memcmp(tag, body + len, sizeof tag);
}

static const dxpu_suite suite = { KEY_SUITE, TAG_BYTES, key_seal, key_open };

/* One for the dialer, replacing one that was never opened. */
static session *session_new(void)
{
    session *s = sessions;
    while (s->taken)
        s++;
    must(s < sessions + SESSIONS); /* the box has no more than its links */
    s->there = true;
    s->owner = dialer;
    s->id = hook_random(NULL) | 1;
    s->key = (uint64_t)hook_random(NULL) << 32 | hook_random(NULL);
    s->packet = 0;
    return s;
}

static size_t hook_handshake(void *user, uint64_t now, dxpu_bytes frame,
                             const dxpu_fw_address *from, uint8_t *out, size_t cap)
{
    static const uint8_t key[DXPU_FW_OWNER_BYTES] = { 2, 2, 2 };
    dxpu_place place = { hook_random(NULL) & 3, 1, 0 };
    dxpu_box_entry before = *dxpu_fw_lease(&node, 1);
    (void)user;
    must(now == now_ns && cap >= DXPU_FRAME_MIN_LIMIT_BYTES && cap >= frame.len && from != NULL);
    (void)dxpu_fw_authorize(&node, &place, hook_random(NULL) >> 8 & 3, epoch, key);
    must(!memcmp(&before, dxpu_fw_lease(&node, 1), sizeof before));
    memcpy(out, frame.ptr, frame.len);
    return hook_random(NULL) & 0x100 ? frame.len : 0;
}

static bool hook_open(void *user, uint64_t now, dxpu_bytes frame, dxpu_fw_opening *o)
{
    uint8_t copy[FRAME_BYTES];
    dxpu_bytes header = { copy, 0 }, all = { copy, frame.len };
    dxpu_frame f;
    (void)user;
    must(now == now_ns && frame.len <= sizeof copy && !o->suite && !o->suite_user);
    memcpy(copy, frame.ptr, frame.len);
    if (dxpu_frame_decode(all, TAG_BYTES, &f) != DXPU_OK)
        return false;
    header.len = (size_t)(f.body.ptr - copy);
    for (session *s = sessions; s < sessions + SESSIONS; s++) {
        if (!s->there || !key_open(s, f.key_phase, f.packet, header, copy + header.len, f.body.len))
            continue;
        if (dxpu_offer_decode(f.body, &o->offer) != DXPU_OK)
            return false;
        o->local_id = s->id;
        o->suite = &suite;
        o->suite_user = s;
        memset(o->owner, s->owner, sizeof o->owner);
        s->taken = true;
        return true;
    }
    return false;
}

static bool hook_allowed(void *user, uint16_t number, const uint8_t owner[DXPU_FW_OWNER_BYTES])
{
    (void)user;
    must(number == 1);
    return allowed >> owner[0] & 1u;
}

static uint64_t hook_work(void *user, void *suite_user, dxpu_channel *ch, uint64_t now)
{
    const session *s = suite_user;
    (void)user;
    must(now == now_ns && s->taken && ch->cfg.suite_user == s);
    if ((hook_random(NULL) >> 8) % 16 == 0)
        dxpu_channel_set_key_phase(ch, (uint8_t)(ch->link.key_phase + 1));
    return hook_random(NULL) & 0x100 ? DXPU_NEVER : now + 1000000;
}

static void hook_end(void *user, void *suite_user)
{
    session *s = suite_user;
    (void)user;
    must(s->taken);
    s->taken = s->there = false;
}

static const dxpu_fw_security security = { hook_handshake, hook_open, hook_allowed,
                                           hook_work,      hook_end,  NULL };

/* A session that the box has is that of one of its channels, and its owner is allowed. */
static void check_sessions(void)
{
    bool has[SESSIONS] = { false };
    for (unsigned i = 0; i < DXPU_FW_LINKS; i++) {
        const dxpu_fw_link *l = &slot.link[i];
        const session *s = l->ch.cfg.suite_user;
        if (l->state == DXPU_FW_LINK_FREE)
            continue;
        must(s->taken && !has[s - sessions] && owner_of(l->owner) == s->owner);
        has[s - sessions] = true;
        must(l->state == DXPU_FW_LINK_OVER ||
             dxpu_channel_status(&l->ch).state >= DXPU_STATE_CLOSED || allowed >> s->owner & 1u);
    }
    for (unsigned i = 0; i < SESSIONS; i++)
        must(has[i] == sessions[i].taken);
}

/* Who has the slot has its lease, which was kept. */
static void check(void)
{
    if (sealed)
        check_sessions();
    if (!slot.active)
        return;
    must(slot.active->ch.cfg.epoch == kept.epoch && dxpu_fw_lease(&node, 1)->used);
    must(!memcmp(slot.active->owner, kept.owner, sizeof kept.owner));
    must(!memcmp(slot.owner, kept.owner, sizeof kept.owner));
}

typedef struct input {
    const uint8_t *at;
    size_t left;
} input;

static uint32_t next(input *in, unsigned bytes)
{
    uint32_t v = 0;
    for (; bytes && in->left; bytes--, in->left--)
        v = v << 8 | *in->at++;
    return v;
}

/* As many bytes as the input says and has, and `most` at most. */
static uint32_t some(input *in, uint8_t *out, uint32_t most)
{
    uint32_t bytes = next(in, 2) % (most + 1);
    if (bytes > in->left)
        bytes = (uint32_t)in->left;
    memcpy(out, in->at, bytes);
    in->at += bytes;
    in->left -= bytes;
    return bytes;
}

static void from_network(input *in, unsigned op)
{
    uint8_t *room = dxpu_fw_ring_room(&rings[0]);
    uint32_t bytes;
    if (!room)
        return;
    if (op == OP_ETHERNET) {
        dxpu_fw_ring_put(&rings[0], some(in, room, FRAME_BYTES));
        return;
    }
    bytes = some(in, room + DXPU_FW_HEADERS_BYTES, FRAME_BYTES - DXPU_FW_HEADERS_BYTES - 4);
    if (op == OP_FRAME) {
        dxpu_frame_seal_crc(room + DXPU_FW_HEADERS_BYTES, bytes);
        bytes += DXPU_FRAME_CRC_BYTES;
    }
    dxpu_fw_ring_put(&rings[0], dxpu_fw_wire_build(&host_at, &node.cfg.own, 0, room, bytes));
}

static void from_device(input *in)
{
    uint8_t *room = dxpu_fw_ring_room(&rings[3]);
    uint32_t bytes, said;
    if (!room)
        return;
    bytes = some(in, room, TLP_BYTES);
    said = next(in, 1);
    dxpu_fw_ring_put(&rings[3], said == 0xff ? UINT32_MAX : said & 0x80 ? bytes + said : bytes);
}

static void device_takes(void)
{
    uint32_t bytes = 0;
    dxpu_bytes tlp = { dxpu_fw_ring_peek(&rings[2], &bytes), 0 };
    dxpu_tlp t;
    if (!tlp.ptr)
        return;
    tlp.len = bytes;
    must(dxpu_tlp_receive(tlp, &t) == DXPU_OK);
    dxpu_fw_ring_take(&rings[2]);
}

static void host_dials(void)
{
    dxpu_channel_config cfg;
    dxpu_channel_config_default(&cfg);
    cfg.local_id = hook_random(NULL) | 1;
    cfg.epoch = ++epoch;
    cfg.remote.slot = 1;
    if (sealed) {
        cfg.suite = &suite;
        cfg.suite_user = session_new();
    }
    must(dxpu_channel_init(&host, &cfg, host_memory, sizeof host_memory) == DXPU_OK);
    must(dxpu_channel_open(&host, now_ns) == DXPU_OK);
}

static void host_goes_on(void)
{
    uint8_t *room, path;
    int n;
    if (dxpu_channel_status(&host).state == DXPU_STATE_IDLE ||
        dxpu_channel_status(&host).state >= DXPU_STATE_CLOSED)
        host_dials();
    while ((room = dxpu_fw_ring_room(&rings[0])) != NULL &&
           (n = dxpu_channel_emit(&host, now_ns, room + DXPU_FW_HEADERS_BYTES,
                                  FRAME_BYTES - DXPU_FW_HEADERS_BYTES, &path)) > 0)
        dxpu_fw_ring_put(&rings[0],
                         dxpu_fw_wire_build(&host_at, &node.cfg.own, 0, room, (uint32_t)n));
}

static void next_dialer(uint8_t how)
{
    dialer = (uint8_t)(1 + how % OWNERS);
    for (unsigned bit = 0x20; bit <= 0x40; bit <<= 1) /* what was dialed last, or before it */
        epoch -= how & bit && epoch;
    if (how & 0x80)
        (void)dxpu_channel_close(&host, DXPU_REASON_DETACH);
    else if (how & 0x10)
        dxpu_channel_reset(&host, DXPU_REASON_DETACH);
}

/* The offer of a liar's open. */
static size_t lie_offer(input *in, uint8_t *out)
{
    dxpu_offer o = { .channel = next(in, 1) | 0x100u,
                     .version_min = 1,
                     .version_max = 1,
                     .suites = KEY_SUITE,
                     .tlp_formats = 1,
                     .window_frames = 16,
                     .frame_limit_bytes = DXPU_FRAME_MIN_LIMIT_BYTES,
                     .hold_ms = 1 + next(in, 1),
                     .epoch = epoch + next(in, 1) - 1,
                     .destination = { 0, (uint16_t)(1 + next(in, 1) % 2), 0 } };
    for (unsigned i = 0; i < DXPU_CLASSES; i++) {
        o.limits.header[i] = 16;
        o.limits.data[i] = 256;
    }
    dxpu_offer_encode(&o, out);
    memset(out + DXPU_OFFER_BYTES, 0, DXPU_FRAME_MIN_LIMIT_BYTES); /* P-3 */
    return next(in, 1) & 3 ? DXPU_FRAME_MIN_LIMIT_BYTES : DXPU_OFFER_BYTES;
}

/* What the box's frames of the session begin with: whoever has its keys knows. */
static uint32_t first_frame(const session *s)
{
    for (unsigned i = 0; i < DXPU_FW_LINKS; i++)
        if (slot.link[i].state != DXPU_FW_LINK_FREE && slot.link[i].ch.cfg.suite_user == s)
            return slot.link[i].ch.cfg.sequence;
    return 0;
}

static void lie(input *in)
{
    uint8_t *room = dxpu_fw_ring_room(&rings[0]), *frame, how = (uint8_t)next(in, 1);
    session *s = sealed && how & 8 ? session_new() : &sessions[(how & 7) % SESSIONS];
    dxpu_frame f = { .kind = how >> 4, .channel = s->id };
    uint8_t body[DXPU_OFFER_BYTES + DXPU_FRAME_MIN_LIMIT_BYTES];
    dxpu_bytes header;
    size_t len;
    if (!room || !s->there)
        return;
    if (f.kind == DXPU_KIND_OPEN) {
        f.channel = 0;
        f.packet = next(in, 1);
        len = lie_offer(in, body);
    } else {
        f.path = next(in, 1) & 3;
        f.key_phase = f.path & 3;
        f.packet = s->packet += 1 + next(in, 1);
        f.sequence = next(in, 4);
        f.ack = first_frame(s) + next(in, 4);
        f.sack = next(in, 1);
        for (unsigned i = 0; i < DXPU_CLASSES; i++)
            f.limits.header[i] = f.limits.data[i] = next(in, 2);
        len = some(in, body, sizeof body);
    }
    frame = room + DXPU_FW_HEADERS_BYTES;
    header.ptr = frame;
    header.len = dxpu_frame_encode_header(&f, len, TAG_BYTES, frame);
    memcpy(frame + header.len, body, len);
    (void)key_seal(s, f.key_phase, f.packet, header, frame + header.len, len);
    dxpu_fw_ring_put(&rings[0], dxpu_fw_wire_build(&host_at, &node.cfg.own, 0, room,
                                                   (uint32_t)(header.len + len) + TAG_BYTES));
}

/* What the box sends; the host hears it. */
static void to_network(void)
{
    dxpu_fw_counters count = { 0 };
    dxpu_fw_datagram d;
    uint32_t bytes = 0;
    uint8_t *frame;
    for (; (frame = dxpu_fw_ring_peek(&rings[1], &bytes)) != NULL; dxpu_fw_ring_take(&rings[1])) {
        bool arp = bytes == DXPU_FW_ETHERNET_MIN_BYTES && frame[13] == 0x06;
        dxpu_fw_address to = host_at;
        memcpy(to.mac, frame, sizeof to.mac); /* whom it answers, the input may have said */
        memcpy(to.ip, frame + DXPU_BYTES_ETHERNET + DXPU_BYTES_IP4_TO, sizeof to.ip);
        to.port = dxpu_get_be16(frame + DXPU_BYTES_ETHERNET + DXPU_BYTES_IP4 + DXPU_BYTES_UDP_TO);
        must(arp || dxpu_fw_wire_parse(&to, frame, bytes, &d, &count) == DXPU_FW_DATAGRAM);
        if (!arp && dxpu_channel_status(&host).state != DXPU_STATE_IDLE)
            (void)dxpu_channel_ingest(&host, now_ns, d.payload, d.payload_bytes, 0);
    }
}

/* The box starts, with the lease that it has kept. */
static void start(void)
{
    dxpu_fw_config cfg;
    dxpu_fw_config_default(&cfg);
    cfg.own = host_at;
    cfg.own.mac[5] = cfg.own.ip[3] = 1;
    cfg.rx = &rings[0];
    cfg.tx = &rings[1];
    cfg.hooks = &hooks;
    cfg.security = sealed ? &security : NULL;
    cfg.channel.hold_ms = 50;
    memset(sessions, 0, sizeof sessions);
    must(dxpu_fw_init(&node, &cfg, &slot, 1, memory, sizeof memory) == DXPU_OK);
    if (kept.epoch)
        must(dxpu_fw_restore(&node, 1, &kept) == DXPU_OK);
}

static void trouble(uint8_t how)
{
    full = how & 1;
    if (how & 2)
        dxpu_fw_close(&node, DXPU_REASON_SHUTDOWN);
    if (how & 4) {
        sealed ^= how & 8;
        start();
        memset(&host, 0, sizeof host);
    }
}

static void begin(void)
{
    static const uint32_t bytes[4] = { FRAME_BYTES, FRAME_BYTES, TLP_BYTES, TLP_BYTES };
    for (unsigned i = 0; i < 4; i++) /* from malloc(): what is beyond the last one is seen */
        must(dxpu_fw_ring_init(&rings[i], malloc((size_t)BUFFERS * bytes[i]),
                               malloc(BUFFERS * sizeof(uint32_t)), BUFFERS, bytes[i]) == DXPU_OK);
    memset(&slot, 0, sizeof slot);
    memset(&host, 0, sizeof host);
    slot.to_device = &rings[2];
    slot.from_device = &rings[3];
    memset(&kept, 0, sizeof kept);
    now_ns = epoch = chance = dialer = 1;
    allowed = 0xe;
    full = false;
    start();
}

/* Everybody leaves: no session stays. */
static void end(void)
{
    memset(&host, 0, sizeof host);
    dxpu_fw_close(&node, DXPU_REASON_SHUTDOWN);
    for (unsigned i = 0; i < 100 && sealed; i++) {
        now_ns += 10000000;
        dxpu_fw_poll(&node, now_ns);
        dxpu_fw_ring_drop(&rings[1]);
    }
    for (unsigned i = 0; i < SESSIONS; i++)
        must(!sessions[i].taken);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    input in = { data, size };
    sealed = next(&in, 1) & 1;
    begin();
    while (in.left) {
        unsigned op = next(&in, 1) % OPS;
        if (op <= OP_FRAME)
            from_network(&in, op);
        else if (op == OP_DEVICE)
            from_device(&in);
        else if (op == OP_TAKE)
            device_takes();
        else if (op == OP_TIME)
            now_ns += (uint64_t)next(&in, 2) * 1000;
        else if (op == OP_ASTRAY)
            rings[next(&in, 1) & 1 ? 3 : 0].put += next(&in, 2);
        else if (op == OP_HOST)
            host_goes_on();
        else if (op == OP_DIALER)
            next_dialer((uint8_t)next(&in, 1));
        else if (op == OP_LIAR)
            lie(&in);
        else if (op == OP_LIST)
            allowed = next(&in, 1) & 0xe;
        else
            trouble((uint8_t)next(&in, 1));
        if (op == OP_LIST)
            dxpu_fw_recheck(&node);
        dxpu_fw_poll(&node, now_ns);
        to_network();
        check();
    }
    end();
    for (unsigned i = 0; i < 4; i++) {
        free(rings[i].buffers);
        free((void *)(uintptr_t)rings[i].lengths);
    }
    return 0;
}
