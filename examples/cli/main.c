/* main.c - the dxpu command: finds the command that is meant
   SPDX-License-Identifier: MIT */
#include "command.h"
#include "log.h"

#include "dxpu.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define TEXT_OF(number) TEXT(number)
#define TEXT(text)      #text

static const option_verbs *const groups[] = { &pool_verbs,   &control_verbs, &key_verbs,
                                              &enroll_verbs, &audit_verbs,   &tlp_verbs,
                                              &pcap_verbs,   &model_verbs,   &xml_verbs };

static const char tail[] =
    "  dxpu lease create --host web7 --model nvme --wait\n"
    "  dmesg | dxpu tlp decode                decode the kernel's AER messages\n"
    "  dxpu attach 127.0.0.1 1 10.0.0.7 3     slot 1 of this host is slot 3 of that box\n"
    "\n"
    "See 'dxpu COMMAND --help' for details, dxpu(1) for everything.\n"
    "Exit status: 0 all decoded or done, 1 some refused, 2 wrong usage, 3 no connection\n"
    "(or no libcurl or libpcap), 4 erases data and was not confirmed (--yes).\n";

void out_of_memory(void)
{
    log_error("out of memory");
    exit(EXIT_USAGE);
}

static const option_program program = {
    "dxpu",
    "lends the devices of a pool, decodes PCIe TLPs, and controls proxies",
    DXPU_VERSION " (wire version " TEXT_OF(DXPU_WIRE_VERSION) ")",
    NULL,
    0,
    tail,
    groups,
    sizeof groups / sizeof *groups,
    NULL
};

static int run(int argc, char **argv)
{
    option_call call;
    int rc = options_parse(&program, argc, argv, &call);
    if (rc == OPTIONS_GO)
        return call.verb->run(&call);
    return rc == OPTIONS_SHOWN ? EXIT_ALL : EXIT_USAGE;
}

int main(int argc, char **argv)
{
    /* a line at a time, so that 'dmesg --follow | dxpu tlp decode' follows */
    setvbuf(stdout, NULL, _IOLBF, BUFSIZ);
    int status = run(argc, argv);
    if (fflush(stdout) != 0 || ferror(stdout)) {
        log_error("standard output: %s", strerror(errno));
        return EXIT_USAGE;
    }
    return status;
}
