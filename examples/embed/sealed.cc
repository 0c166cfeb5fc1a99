// sealed.cc - a host and a box that know each other's public keys: handshake, sealed frames, C++17
// SPDX-License-Identifier: MIT
//
// Both ends are in one process, over a network that loses frames; the argument is the
// percentage to lose.  Not here: sockets (udp_pair.c), many hosts (acceptor.c), files for keys.
#define DXPU_IMPLEMENTATION
#include "dxpu.h"
#include "dxpu_sodium.h"
#include <cstdio>
#include <cstdlib>
#include <err.h>
#include <memory>
#include <sodium.h>
#include <vector>

static const uint8_t mwr[16] = { 0x40, 0, 0, 1, 0, 0, 0, 15, 1, 2, 3, 4, 5, 6, 7, 8 };
static uint64_t now_ns = 1; // simulated
static unsigned loss;

static void check(int rc)
{
    if (rc < 0)
        errx(1, "%s", dxpu_error_text(rc));
}

struct End {
    End *peer = nullptr;
    std::unique_ptr<dxpu_noise_pair, void (*)(dxpu_noise_pair *)> key;
    std::unique_ptr<dxpu_sodium, void (*)(dxpu_sodium *)> sodium;
    dxpu_sodium_session *session = nullptr; // owned by sodium; a box has one for each host
    dxpu_sodium_peer seen{};                // what a box remembers of the host
    dxpu_channel channel{};                 // idle until it is initialised
    std::vector<uint64_t> memory;           // the channel's
    uint64_t ask_ns = DXPU_NEVER;

    End() : key(dxpu_sodium_key_new(), dxpu_sodium_key_free), sodium(nullptr, dxpu_sodium_destroy)
    {
        dxpu_sodium_config cfg;
        dxpu_sodium_config_default(&cfg);
        cfg.identity = key.get();
        cfg.cb.user = this;
        cfg.cb.find = [](void *user, const uint8_t *k) { // whose key is it?
            End *e = static_cast<End *>(user);
            return memcmp(k, e->peer->key->public_key, 32) ? nullptr : &e->seen;
        };
        cfg.cb.authorize = [](void *, dxpu_sodium_peer *, const uint8_t *, // may it have the slot?
                              const dxpu_sodium_request *asked, uint32_t *id) {
            *id = randombytes_random() | 1; // never 0
            return uint8_t(asked->epoch == 7 ? DXPU_REASON_NONE : DXPU_REASON_EPOCH);
        };
        sodium.reset(key ? dxpu_sodium_create(&cfg) : nullptr);
        check(sodium ? DXPU_OK : DXPU_E_FULL);
    }

    void attach(bool host) // makes a channel with the session's keys and the request it carried
    {
        const dxpu_sodium_request *asked = dxpu_sodium_asked(session);
        dxpu_channel_config cfg;
        dxpu_channel_config_default(&cfg);
        cfg.local_id = dxpu_sodium_local_id(session);
        cfg.sequence = randombytes_random();
        cfg.epoch = asked->epoch;
        cfg.local = host ? asked->source : asked->destination;
        cfg.remote = host ? asked->destination : asked->source;
        cfg.suite = dxpu_sodium_suite(session);
        cfg.suite_user = session;
        memory.resize(dxpu_channel_bytes(&cfg) / 8 + 1);
        check(dxpu_channel_init(&channel, &cfg, memory.data(), 8 * memory.size()));
    }

    void send(const uint8_t *frame, int bytes)
    {
        std::vector<uint8_t> copy(frame, frame + bytes);
        if (randombytes_uniform(100) >= loss)
            peer->arrive(copy.data(), copy.size());
    }

    void arrive(uint8_t *frame, size_t bytes) // refused frames are counted
    {
        uint8_t answer[DXPU_SODIUM_FRAME_BYTES];
        const dxpu_bytes view{ frame, bytes }, from{ mwr, 4 }; // the sender's address as bytes
        size_t n = 0;
        dxpu_sodium_session *done = nullptr;
        dxpu_offer offer;
        if (bytes > DXPU_FRAME_KIND && frame[DXPU_FRAME_KIND] == DXPU_KIND_HANDSHAKE) {
            dxpu_sodium_ingest(sodium.get(), now_ns, view, from, answer, sizeof answer, &n, &done);
            if (n)
                send(answer, int(n));
            if (!done)
                return;
            if (dxpu_sodium_state(done) != DXPU_SODIUM_KEYED)
                errx(1, "refused: %s", dxpu_reason_text(dxpu_sodium_reason(done)));
            ask_ns = DXPU_NEVER;
            attach(true);
            check(dxpu_channel_open(&channel, now_ns));
            check(dxpu_channel_submit(&channel, { mwr, sizeof mwr }, now_ns, 0));
        } else if (session) {
            dxpu_channel_ingest(&channel, now_ns, frame, bytes, 0);
        } else if ((session = dxpu_sodium_opener(sodium.get(), now_ns, view, &offer))) {
            attach(false);
            check(dxpu_channel_accept(&channel, now_ns, frame, bytes));
        }
    }

    int work() // sends what is due; returns below 0 when the channel has ended
    {
        uint8_t frame[DXPU_FRAME_MAX_LIMIT_BYTES], path;
        int n = 0;
        if (now_ns >= ask_ns) { // now_ns twice: the second one should be the time of day
            check(n = dxpu_sodium_initiate(session, now_ns, now_ns, frame, sizeof frame));
            ask_ns = now_ns + 100000000; // asks again if no answer arrives
            send(frame, n);
        }
        if (dxpu_channel_status(&channel).state == DXPU_STATE_IDLE)
            return 0;
        while ((n = dxpu_channel_emit(&channel, now_ns, frame, sizeof frame, &path)) > 0)
            send(frame, n);
        dxpu_sodium_work(session, &channel, now_ns); // replaces keys before they are used up
        if (dxpu_channel_status(&channel).state >= DXPU_STATE_UP)
            dxpu_sodium_settle(session);
        return n;
    }
};

int main(int argc, char **argv)
{
    loss = argc > 1 ? unsigned(std::atoi(argv[1])) : 0;
    check(dxpu_sodium_init());
    End host, box;
    host.peer = &box;
    box.peer = &host;
    dxpu_sodium_request wanted{ randombytes_random() | 1, 1, 1, 0, 7, { 1, 0, 0xffff },
                                { 2, 1, 0xffff } };
    host.session = dxpu_sodium_begin(host.sodium.get(), box.key->public_key, &wanted);
    check(host.session ? DXPU_OK : DXPU_E_FULL);
    for (host.ask_ns = now_ns; host.work() == 0; now_ns += 1000000) { // see dxpu_channel_next_ns()
        box.work();
        dxpu_bytes tlp = dxpu_channel_peek(&box.channel, DXPU_POSTED).tlp;
        if (tlp.len) {
            const dxpu_suite *suite = dxpu_sodium_suite(box.session);
            std::printf("box: %zu bytes, %s\n", tlp.len, dxpu_sodium_suite_name(suite->id));
            check(dxpu_channel_take(&box.channel, DXPU_POSTED, now_ns));
            check(dxpu_channel_close(&host.channel, DXPU_REASON_SHUTDOWN));
        }
    }
    std::printf("host: %s\n", dxpu_state_name(dxpu_channel_status(&host.channel).state));
    return dxpu_channel_status(&host.channel).error != DXPU_E_CLOSED;
}
