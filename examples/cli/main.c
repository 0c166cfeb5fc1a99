/* main.c - the dxpu command: finds the command that is meant
   SPDX-License-Identifier: MIT */
#include "command.h"

#include "dxpu.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

static const char help[] =
    "dxpu - looks at PCIe TLPs in logs and captures, and drives proxies\n"
    "\n"
    "usage: dxpu tlp decode [--json] [--strict] [HEX... | -]\n"
    "       dxpu tlp encode [--dwords | --bytes] [OBJECT | FILE | -]...\n"
    "       dxpu pcap [--json] [--limit N] FILE\n"
    "       dxpu pcap --same A B\n"
    "       dxpu attach [--wait] [--epoch N] HOST SLOT BOX SLOT\n"
    "       dxpu detach [--wait] [--epoch N] HOST SLOT\n"
    "       dxpu status [--json] PROXY [SLOT]\n"
    "       dxpu screenshot [--json] BOX SLOT FILE\n"
    "       dxpu model [--rtt US] [--trace FILE] [--paper] [--simulate] [--sweep]\n"
    "       dxpu --help | --version\n"
    "\n"
    "  dmesg | dxpu tlp decode                what the kernel's AER messages say\n"
    "  dxpu tlp decode 04000001 0000220f 01070000 9eece789\n"
    "  dxpu pcap nic.pcap                     a capture of TLPs or of dxpu frames\n"
    "  dxpu attach 127.0.0.1 1 10.0.0.7 3     slot 1 of this host is slot 3 of that box\n"
    "\n"
    "'dxpu COMMAND --help' tells more, dxpu(1) everything.\n"
    "Exit status: 0 all decoded or done, 1 some refused, 2 wrong usage, 3 no connection.\n";

int usage_error(const char *command, const char *format, ...)
{
    va_list args;
    fprintf(stderr, "dxpu%s%s: ", *command ? " " : "", command);
    va_start(args, format);
    vfprintf(stderr, format, args);
    va_end(args);
    fprintf(stderr, "\n'dxpu%s%.*s --help' tells how it is used.\n", *command ? " " : "",
            (int)strcspn(command, " "), command);
    return EXIT_USAGE;
}

static int run(int argc, char **argv)
{
    if (argc < 2) {
        fputs(help, stderr);
        return EXIT_USAGE;
    }
    if (strcmp(argv[1], "tlp") == 0)
        return tlp_command(argc - 1, argv + 1);
    if (strcmp(argv[1], "pcap") == 0)
        return pcap_command(argc - 1, argv + 1);
    if (strcmp(argv[1], "attach") == 0)
        return attach_command(argc - 1, argv + 1);
    if (strcmp(argv[1], "detach") == 0)
        return detach_command(argc - 1, argv + 1);
    if (strcmp(argv[1], "status") == 0)
        return status_command(argc - 1, argv + 1);
    if (strcmp(argv[1], "screenshot") == 0)
        return screenshot_command(argc - 1, argv + 1);
    if (strcmp(argv[1], "model") == 0)
        return model_command(argc - 1, argv + 1);
    if (strcmp(argv[1], "--help") == 0 || strcmp(argv[1], "-h") == 0 ||
        strcmp(argv[1], "help") == 0) {
        fputs(help, stdout);
        return EXIT_ALL;
    }
    if (strcmp(argv[1], "--version") == 0) {
        printf("dxpu %s (wire version %d)\n", DXPU_VERSION, DXPU_WIRE_VERSION);
        return EXIT_ALL;
    }
    return usage_error(
        "", "no command '%s'; there are tlp, pcap, attach, detach, status, screenshot and model",
        argv[1]);
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
