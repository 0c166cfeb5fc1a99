/* late_pcap.c - libpcap, see late.h
   SPDX-License-Identifier: MIT */
#ifndef _DEFAULT_SOURCE
#define _DEFAULT_SOURCE /* pcap.h needs u_int */
#endif
#include "late.h"

#include <pcap/pcap.h>

#define FUNCTIONS(F, P, V)                                                                         \
    F(pcap_t *, pcap_open_offline_with_tstamp_precision,                                           \
      (const char *file, u_int precision, char *error), (file, precision, error))                  \
    F(pcap_t *, pcap_open_dead_with_tstamp_precision, (int link, int snap, u_int precision),       \
      (link, snap, precision))                                                                     \
    F(int, pcap_datalink, (pcap_t * p), (p))                                                       \
    F(int, pcap_next_ex, (pcap_t * p, struct pcap_pkthdr * *head, const u_char **data),            \
      (p, head, data))                                                                             \
    F(char *, pcap_geterr, (pcap_t * p), (p))                                                      \
    P(void, pcap_close, (pcap_t * p), (p))                                                         \
    F(pcap_dumper_t *, pcap_dump_open, (pcap_t * p, const char *file), (p, file))                  \
    F(FILE *, pcap_dump_file, (pcap_dumper_t * d), (d))                                            \
    F(int, pcap_dump_flush, (pcap_dumper_t * d), (d))                                              \
    P(void, pcap_dump, (u_char * d, const struct pcap_pkthdr *head, const u_char *data),           \
      (d, head, data))                                                                             \
    P(void, pcap_dump_close, (pcap_dumper_t * d), (d))

static const char *const names[] = { "libpcap.so.0.8", "libpcap.so.1",
                                     NULL }; /* Debian's; others */
LATE_LIBRARY(FUNCTIONS, names, "libpcap0.8")
