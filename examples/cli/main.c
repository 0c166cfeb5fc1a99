/* main.c - the dxpu command: finds the command that is meant
   SPDX-License-Identifier: MIT */
#include "command.h"

#include "dxpu.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char help[] =
    "dxpu - lends the devices of a pool, decodes PCIe TLPs, and controls proxies\n"
    "\n"
    "usage: dxpu COMMAND ...\n"
    "       dxpu --help | --version\n"
    "\n"
    "The pool, through dxpu-manager (--manager URL or DXPU_MANAGER; --token-file or DXPU_TOKEN):\n"
    "  pool | top                             summary | live view\n"
    "  list boxes|hosts|slots|leases|tenants  one line for each\n"
    "  show node N | slot N.S | lease ID      details and last events\n"
    "  lease create --host N --model M [--count N] [--for TIME] [--wait]\n"
    "  lease release | extend | attach ID     end, prolong, or move a lease\n"
    "  drain BOX [--move | --off] [--wait]    take a box out of service\n"
    "  replace | break | repair | reset SLOT  a slot: 10.3, shelf1.3\n"
    "  forget NODE                            remove a node that is gone for good\n"
    "  rekey NODE                             accept another key at its next register\n"
    "  owner HOST TENANT | HOST --nobody      set the owner of a host\n"
    "  tenant NAME --quota N, spares MODEL N  limits and reserves\n"
    "  events [--follow]                      past and new events\n"
    "\n"
    "Proxies without a manager, through their --control:\n"
    "  attach [--wait] [--epoch N] HOST SLOT BOX SLOT\n"
    "  detach [--wait] [--epoch N] HOST SLOT\n"
    "  status [--json] PROXY [SLOT]\n"
    "  screenshot [--json] BOX SLOT FILE\n"
    "\n"
    "Keys of proxies, for their --key, --peer and --peers:\n"
    "  keygen [--json] FILE                   create a secret key and print its public key\n"
    "  pubkey [--json] FILE                   print the public key of a secret key\n"
    "  enroll --key FILE --listen ADDR | ADDR exchange public keys and confirm a short code\n"
    "\n"
    "Logs written with --audit:\n"
    "  audit [--json] FILE...                 verify audit logs\n"
    "\n"
    "TLPs in logs and captures:\n"
    "  tlp decode [--json] [--strict] [HEX... | FILE... | -]\n"
    "  tlp encode [--dwords | --bytes] [OBJECT | FILE | -]...\n"
    "  pcap [--json] [--limit N] FILE\n"
    "  pcap --same A B\n"
    "\n"
    "Relative performance of a workload when its GPU is lent:\n"
    "  model [--rtt US] [--trace FILE] [--paper | --simulate | --sweep]\n"
    "\n"
    "  dxpu lease create --host web7 --model nvme --wait\n"
    "  dmesg | dxpu tlp decode                decode the kernel's AER messages\n"
    "  dxpu attach 127.0.0.1 1 10.0.0.7 3     slot 1 of this host is slot 3 of that box\n"
    "\n"
    "See 'dxpu COMMAND --help' for details, dxpu(1) for everything.\n"
    "Exit status: 0 all decoded or done, 1 some refused, 2 wrong usage, 3 no connection.\n";

static const struct {
    const char *name;
    int (*run)(int argc, char **argv);
} commands[] = {
    { "pool", pool_command },
    { "top", pool_command },
    { "list", pool_command },
    { "show", pool_command },
    { "lease", pool_command },
    { "drain", pool_command },
    { "replace", pool_command },
    { "break", pool_command },
    { "repair", pool_command },
    { "reset", pool_command },
    { "forget", pool_command },
    { "rekey", pool_command },
    { "owner", pool_command },
    { "tenant", pool_command },
    { "spares", pool_command },
    { "events", pool_command },
    { "clock", pool_command },
    { "attach", attach_command },
    { "detach", detach_command },
    { "status", status_command },
    { "screenshot", screenshot_command },
    { "tlp", tlp_command },
    { "pcap", pcap_command },
    { "model", model_command },
    { "keygen", keygen_command },
    { "pubkey", pubkey_command },
    { "enroll", enroll_command },
    { "audit", audit_command },
};

void out_of_memory(void)
{
    fputs("dxpu: out of memory\n", stderr);
    exit(EXIT_USAGE);
}

int usage_error(const char *command, const char *format, ...)
{
    va_list args;
    fprintf(stderr, "dxpu%s%s: ", *command ? " " : "", command);
    va_start(args, format);
    vfprintf(stderr, format, args);
    va_end(args);
    fprintf(stderr, "\nSee 'dxpu%s%.*s --help'.\n", *command ? " " : "", (int)strcspn(command, " "),
            command);
    return EXIT_USAGE;
}

static int run(int argc, char **argv)
{
    if (argc < 2) {
        fputs(help, stderr);
        return EXIT_USAGE;
    }
    for (size_t i = 0; i < sizeof commands / sizeof *commands; i++) {
        if (strcmp(argv[1], commands[i].name) == 0)
            return commands[i].run(argc - 1, argv + 1);
    }
    if (strcmp(argv[1], "--help") == 0 || strcmp(argv[1], "-h") == 0 ||
        strcmp(argv[1], "help") == 0) {
        fputs(help, stdout);
        return EXIT_ALL;
    }
    if (strcmp(argv[1], "--version") == 0) {
        printf("dxpu %s (wire version %d)\n", DXPU_VERSION, DXPU_WIRE_VERSION);
        return EXIT_ALL;
    }
    return usage_error("", "no command '%s'; 'dxpu --help' lists the commands", argv[1]);
}

int main(int argc, char **argv)
{
    /* a line at a time, so that 'dmesg --follow | dxpu tlp decode' follows */
    setvbuf(stdout, NULL, _IOLBF, BUFSIZ);
    int status = run(argc, argv);
    if (fflush(stdout) != 0 || ferror(stdout)) {
        perror("dxpu: standard output");
        return EXIT_USAGE;
    }
    return status;
}
