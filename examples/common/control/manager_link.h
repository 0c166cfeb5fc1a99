/* manager_link.h - a proxy's connection to its manager: its reports, and how often
   SPDX-License-Identifier: MIT

   The proxy connects, registers all its slots, and from then on each one again that has changed.
   What the manager asks for is done by `requests`, as at the control port.  Without its manager the
   proxy goes on as it is, and dials again. */
#ifndef MANAGER_LINK_H_INCLUDED
#define MANAGER_LINK_H_INCLUDED

#include "identity_file.h"
#include "options.h"
#include "requests.h"

enum { MANAGER_PORT = 4457, MANAGER_NAME_MAX = 64, MANAGERS_MAX = 9 };

typedef struct manager_settings {
    const char *address;  /* ADDR[:PORT][,ADDR[:PORT]...]: the managers of a pool, of which one
                             leads; NULL: no manager */
    const char *key;      /* their public key */
    const char *identity; /* a file of identity_file.h */
    const char *name;     /* for people; NULL: the machine's */
    unsigned number;      /* of several in one process, from 0; the second one's name ends in -2 */
} manager_settings;
/* Rows for options.h that both proxies share; s is a manager_settings. */
#define MANAGER_OPTIONS(s)                                                                         \
    { "manager",                                                                                   \
      "ADDR[:PORT][,...]",                                                                         \
      "register with the one of these managers that leads, and carry out its orders (:4457)",      \
      OPTION_TEXT,                                                                                 \
      &(s).address,                                                                                \
      0,                                                                                           \
      0 },                                                                                         \
        { "manager-key",                                                                           \
          "KEY",                                                                                   \
          "the manager's public key, which it prints when it starts",                              \
          OPTION_TEXT,                                                                             \
          &(s).key,                                                                                \
          0,                                                                                       \
          0 },                                                                                     \
        { "identity",                                                                              \
          "FILE",                                                                                  \
          "file with the identity of this proxy at its manager; created if missing",               \
          OPTION_TEXT,                                                                             \
          &(s).identity,                                                                           \
          0,                                                                                       \
          0 },                                                                                     \
    {                                                                                              \
        "name", "TEXT", "name of this proxy at the manager (the machine's name)", OPTION_TEXT,     \
            &(s).name, 0, 0                                                                        \
    }

/* What the link asks of its proxy. */
typedef struct manager_proxy {
    void *user;
    /* Fill in what is known of a slot; *out is zero and has its number. */
    void (*device)(void *user, unsigned number, dxpu_control_device *out);
    /* Where hosts reach a box: their number.  here: this end of the connection to the manager.
       NULL: it is no box. */
    unsigned (*paths)(void *user, const dxpu_udp_address *here,
                      dxpu_control_address out[DXPU_CONTROL_PATHS_MAX]);
    /* The manager has given the proxy its number. */
    void (*node)(void *user, uint32_t node);
    /* At each answer to a register: does it order which slots may reach others directly (M-180)?
       NULL: it is no box. */
    void (*directs)(void *user, bool on);
} manager_proxy;

typedef struct manager_link manager_link;

/* NULL, or what is wrong with the settings: a matter of usage.  Valid until the next call.
   further: an option that this program needs with --manager and was not given, "--state FILE";
   NULL: none. */
const char *manager_check(const manager_settings *s, const keys_settings *k, const char *further);
/* Begin to dial; k and r stay the caller's.  NULL after a message. */
manager_link *manager_open(struct event_base *base, const manager_settings *s,
                           const uint8_t identity[IDENTITY_BYTES], keys *k, requests *r,
                           const manager_proxy *proxy);
void manager_close(manager_link *m); /* NULL is allowed, also below */
/* Something of a slot has changed: it is registered again, once this turn of the loop is over.
   This, and manager_alarm(), from any thread. */
void manager_changed(manager_link *m, unsigned number);
/* Report what an operator should look at; slot 0: none.  Kept while there is no connection, the
   oldest ones. */
void manager_alarm(manager_link *m, unsigned slot, unsigned kind, uint64_t epoch, const char *text);
void manager_report(manager_link *m, report *r);

#endif /* MANAGER_LINK_H_INCLUDED */
