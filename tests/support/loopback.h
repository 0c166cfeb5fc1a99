/* loopback.h - loopback addresses of this process, for protocols whose ports are fixed
   SPDX-License-Identifier: MIT */
#ifndef LOOPBACK_H_INCLUDED
#define LOOPBACK_H_INCLUDED

#include <arpa/inet.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cmocka.h>

enum { LOOPBACK_CLAIM = 28473, LOOPBACK_BYTES = 16 }; /* a UDP port that no test uses otherwise */

/* `count` addresses of a network of its own, as card.py does: another check may run on this
   machine.  Who has port LOOPBACK_CLAIM of the first one has them all, until the process ends. */
static inline void loopback_claim(char (*out)[LOOPBACK_BYTES], unsigned count)
{
    struct sockaddr_in a;
    int fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    unsigned seed = (unsigned)getpid();
    assert_true(fd >= 0);
    memset(&a, 0, sizeof a);
    a.sin_family = AF_INET;
    a.sin_port = htons(LOOPBACK_CLAIM);
    for (unsigned tries = 0; tries < 100; tries++, seed = seed * 1103515245u + 12345u) {
        for (unsigned i = 0; i < count; i++)
            (void)snprintf(out[i], LOOPBACK_BYTES, "127.%hhu.%hhu.%hhu",
                           (uint8_t)(4 + (seed >> 8) % 246), (uint8_t)(seed >> 16),
                           (uint8_t)(i + 1));
        assert_int_equal(inet_pton(AF_INET, out[0], &a.sin_addr), 1);
        if (!bind(fd, (struct sockaddr *)&a, sizeof a))
            return; /* it stays open */
    }
    fail_msg("no loopback addresses are free");
}

#endif /* LOOPBACK_H_INCLUDED */
