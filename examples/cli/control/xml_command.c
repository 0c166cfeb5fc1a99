/* xml_command.c - dxpu xml: what a libvirt domain needs for the functions of a dxpu-host
   SPDX-License-Identifier: MIT */
#include "command.h"
#include "json.h"
#include "log.h"

#include <stdio.h>
#include <string.h>

enum { PATH_BYTES = 108, TEXT_BYTES = 1024 };

static struct {
    bool direct;
    uint64_t slots, reserve;
    const char *qmp;
} set = { false, 8, 0, NULL };

/* In an attribute between single quotes. */
static void put(const char *text)
{
    for (; *text; text++) {
        switch (*text) {
        case '&':
            fputs("&amp;", stdout);
            break;
        case '<':
            fputs("&lt;", stdout);
            break;
        case '\'':
            fputs("&apos;", stdout);
            break;
        default:
            putchar(*text);
            break;
        }
    }
}

static void put_arg(const char *text)
{
    fputs("    <qemu:arg value='", stdout);
    put(text);
    fputs("'/>\n", stdout);
}

/* The function at this socket; slot: in the root port of that, 0 in the root bus. */
static void put_function(const char *path, unsigned slot)
{
    char text[TEXT_BYTES], bus[24];
    json_writer w;
    snprintf(bus, sizeof bus, "ua-rp%u", slot);
    json_to_text(&w, text, sizeof text);
    json_put_open(&w, NULL, '{');
    json_put_text(&w, "driver", "vfio-user-pci");
    if (slot)
        json_put_text(&w, "bus", bus);
    json_put_open(&w, "socket", '{');
    json_put_text(&w, "type", "unix");
    json_put_text(&w, "path", path);
    json_put_close(&w, '}');
    json_put_close(&w, '}');
    put_arg("-device");
    put_arg(text);
}

/* QEMU reads two commas as one. */
static void put_qmp(void)
{
    char text[2 * PATH_BYTES + 40] = "unix:";
    size_t at = strlen(text);
    for (const char *c = set.qmp; *c; c++) {
        text[at++] = *c;
        if (*c == ',')
            text[at++] = ',';
    }
    snprintf(text + at, sizeof text - at, ",server=on,wait=off");
    put_arg("-qmp");
    put_arg(text);
}

static void put_ports(void)
{
    puts("  <devices>");
    for (unsigned n = 1; n <= set.slots; n++)
        printf("    <controller type='pci' model='pcie-root-port'>\n"
               "      <alias name='ua-rp%u'/>\n"
               "    </controller>\n",
               n);
    puts("  </devices>");
}

static void put_commandline(const char *socket)
{
    char path[PATH_BYTES + 12];
    puts("  <qemu:commandline>");
    if (!set.direct) {
        put_arg("-global");
        put_arg("ICH9-LPC.acpi-pci-hotplug-with-bridge-support=off");
        put_function(socket, 0);
    } else if (set.qmp) {
        put_qmp();
    }
    for (unsigned n = 1; set.direct && !set.qmp && n <= set.slots; n++) {
        snprintf(path, sizeof path, "%s.%u", socket, n);
        put_function(path, n);
    }
    puts("  </qemu:commandline>");
}

/* Of each port: where BARs that are plugged in later find room. */
static void put_override(void)
{
    puts("  <qemu:override>");
    for (unsigned n = 1; n <= set.slots; n++)
        printf("    <qemu:device alias='ua-rp%u'>\n"
               "      <qemu:frontend>\n"
               "        <qemu:property name='pref64-reserve' type='unsigned' value='%llu'/>\n"
               "      </qemu:frontend>\n"
               "    </qemu:device>\n",
               n, (unsigned long long)set.reserve);
    puts("  </qemu:override>");
}

static int print_xml(const option_call *c)
{
    const char *socket = c->words[0];
    if (*socket != '/' || strlen(socket) >= PATH_BYTES)
        return options_wrong("%s: must be an absolute path of less than %d bytes", socket,
                             PATH_BYTES);
    if (set.qmp && (*set.qmp != '/' || strlen(set.qmp) >= PATH_BYTES))
        return options_wrong("--qmp: must be an absolute path of less than %d bytes", PATH_BYTES);
    if (!set.direct && (set.qmp || set.reserve || options_given(&set.slots)))
        return options_wrong("--qmp, --slots and --reserve require --direct");
    puts("<domain type='kvm' xmlns:qemu='http://libvirt.org/schemas/domain/qemu/1.0'>\n"
         "  <memoryBacking>\n"
         "    <source type='memfd'/>\n"
         "    <access mode='shared'/>\n"
         "  </memoryBacking>");
    if (set.direct)
        put_ports();
    put_commandline(socket);
    if (set.reserve)
        put_override();
    puts("</domain>");
    return EXIT_ALL;
}

static const option_row rows[] = {
    { "direct", NULL, "for dxpu-host --direct: root ports, and a function in each", OPTION_FLAG,
      &set.direct, 0, 0 },
    { "slots", "N", "with --direct: number of slots (8)", OPTION_NUMBER, &set.slots, 1, 28 },
    { "qmp", "SOCKET", "with --direct: dxpu-host plugs the functions in, by this socket of QEMU",
      OPTION_TEXT, &set.qmp, 0, 0 },
    { "reserve", "SIZE", "with --direct: room of each port for BARs, twice the largest (off)",
      OPTION_SIZE, &set.reserve, 1u << 20, (uint64_t)1 << 45 },
};
static const char tail[] =
    "  dxpu xml --direct --slots 2 --qmp /run/dxpu/web7.qmp /run/dxpu/web7.sock\n"
    "  dxpu-host --vfio-user /run/dxpu/web7.sock --direct --slots 2 \\\n"
    "    --qmp /run/dxpu/web7.qmp,bus=ua-rp%u ...\n"
    "\n"
    "Exit status: 0 done, 2 wrong usage.\n";

static const option_verb verbs[] = {
    { "xml",
      "SOCKET",
      "print what a libvirt domain needs for a dxpu-host",
      "Prints the parts of a libvirt domain that a virtual machine needs to use the devices of a "
      "dxpu-host with this --vfio-user SOCKET: shared memory, and QEMU's options, which libvirt "
      "passes on. Merge them with 'virsh edit'. Root ports are named ua-rp1, ua-rp2, ...",
      tail,
      1,
      1,
      { OPTION_ROWS(rows), { NULL, 0 } },
      print_xml },
};

const option_verbs xml_verbs = { "Virtual machines", verbs, 1 };
