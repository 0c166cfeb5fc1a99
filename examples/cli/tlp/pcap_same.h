/* pcap_same.h - did the TLPs of one capture arrive as another one shows?
   SPDX-License-Identifier: MIT */
#ifndef DXPU_CLI_PCAP_SAME_H
#define DXPU_CLI_PCAP_SAME_H

#include <stdbool.h>

/* Compare the complete TLPs of two captures class by class and print what became of those of
   `sent` in `delivered`.  An exit status. */
int pcap_same(const char *sent, const char *delivered, bool json);

#endif
