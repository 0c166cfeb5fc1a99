/* plug.c - see plug.h
   SPDX-License-Identifier: MIT

   CONTENTS   1 Settings   2 Commands   3 A slot   4 Answers and events   5 Life */
#include "plug.h"
#include "log.h"

#include <jansson.h>
#include <string.h>

/* What a command was for; its id is that and the slot. */
enum { FOR_READY, FOR_EVENTS, FOR_LIST, FOR_STATUS, FOR_ADD, FOR_DELETE, FOR_CANCEL, FOR_MOVE };

#define AGAIN_NS 5000000000u /* from a refused command to the next try */
#define GRACE_NS 3000000000u /* what QEMU and a keeper say of a slot may differ */
#define NEVER_NS UINT64_MAX

/* Released versions up to this one abort when a function with MSI-X is unplugged, and of later ones
   none is known not to. */
enum { VERSION_STEP = 100, FIRST_WITH_CLIENT = 100100 };

/* ==== 1  Settings ============================================================================= */

static const char *parse_bus(const char *text, size_t len, plug_settings *out)
{
    const char *at;
    if (len >= sizeof out->bus)
        return "the name of the root ports is too long";
    memcpy(out->bus, text, len);
    out->bus[len] = '\0';
    at = strchr(out->bus, '%');
    if (!at || at[1] != 'u' || strchr(at + 1, '%'))
        return "bus= must have one %u, which becomes the slot's number";
    return NULL;
}

const char *plug_parse(const char *text, plug_settings *out)
{
    size_t len = strcspn(text, ",");
    const char *wrong = NULL;
    memset(out, 0, sizeof *out);
    memcpy(out->bus, "rp%u", sizeof "rp%u");
    if (!len || len >= sizeof out->socket)
        return "must be SOCKET[,bus=NAME%u][,unplug-msix], and SOCKET at most 107 bytes";
    memcpy(out->socket, text, len);
    for (text += len; *text && !wrong; text += len) {
        len = strcspn(++text, ",");
        if (len > 4 && !strncmp(text, "bus=", 4))
            wrong = parse_bus(text + 4, len - 4, out);
        else if (len == 11 && !strncmp(text, "unplug-msix", len))
            out->unplugs_msix = true;
        else
            wrong = "must be SOCKET[,bus=NAME%u][,unplug-msix]";
    }
    return wrong;
}

static void bus_of(const plug *p, unsigned slot, char out[PLUG_NAME_BYTES + 12])
{
    const char *at = strchr(p->set->bus, '%');
    snprintf(out, PLUG_NAME_BYTES + 12, "%.*s%u%s", (int)(at - p->set->bus), p->set->bus, slot,
             at + 2);
}

/* A mark at the end says that the function has MSI-X: QEMU does not say it, and the next process
   has to know it (V-48). */
static void id_of(const plug *p, unsigned slot, bool marked, char out[PLUG_NAME_BYTES + 20])
{
    char bus[PLUG_NAME_BYTES + 12];
    bus_of(p, slot, bus);
    snprintf(out, PLUG_NAME_BYTES + 20, "dxpu-%s%s", bus, marked ? "x" : "");
}

/* The slot with this name, 0: none. */
static unsigned slot_of(const plug *p, const char *id, bool *marked)
{
    for (unsigned n = 1; id && n <= p->slots; n++) {
        for (unsigned mark = 0; mark < 2; mark++) {
            char own[PLUG_NAME_BYTES + 20];
            *marked = mark;
            id_of(p, n, *marked, own);
            if (!strcmp(id, own))
                return n;
        }
    }
    return 0;
}

/* ==== 2  Commands ============================================================================= */

/* arguments: stolen, may be NULL. */
static void command(plug *p, const char *name, json_t *arguments, unsigned purpose, unsigned slot)
{
    json_t *all = json_pack("{s:s, s:i}", "execute", name, "id", (int)(purpose << 8 | slot));
    char *text;
    if (all && arguments)
        (void)json_object_set(all, "arguments", arguments);
    json_decref(arguments);
    text = all ? json_dumps(all, JSON_COMPACT) : NULL;
    if (text)
        p->send(p->user, text);
    free(text);
    json_decref(all);
}

static void add(plug *p, unsigned n)
{
    char bus[PLUG_NAME_BYTES + 12], id[PLUG_NAME_BYTES + 20], path[PLUG_PATH_BYTES + 12];
    plug_slot *s = &p->slot[n - 1];
    s->vm = PLUG_VM_ADDING;
    s->msix = s->marked = s->view.msix;
    bus_of(p, n, bus);
    id_of(p, n, s->marked, id);
    snprintf(path, sizeof path, "%s.%u", p->path, n);
    command(p, "device_add",
            json_pack("{s:s, s:s, s:s, s:{s:s, s:s}}", "driver", "vfio-user-pci", "id", id, "bus",
                      bus, "socket", "type", "unix", "path", path),
            FOR_ADD, n);
}

static void ask_to_delete(plug *p, unsigned n)
{
    char id[PLUG_NAME_BYTES + 20];
    id_of(p, n, p->slot[n - 1].marked, id);
    p->slot[n - 1].vm = PLUG_VM_DELETING;
    command(p, "device_del", json_pack("{s:s}", "id", id), FOR_DELETE, n);
}

/* ==== 3  A slot =============================================================================== */

/* The owner may go on, and take the device: it is not in the way of the machine. */
static void let_go(plug *p, unsigned n)
{
    plug_slot *s = &p->slot[n - 1];
    if (s->view.leaving && !s->answered)
        p->removed(p->user, n);
    s->answered = s->view.leaving;
    s->until_ns = 0;
}

/* V-48: what counts is the function that QEMU has, which may not be the one that is shown now. */
static bool may_delete(const plug *p, const plug_slot *s)
{
    return !s->msix || p->set->unplugs_msix;
}

static void say_it_stays(const plug *p, plug_slot *s, unsigned n)
{
    if (!s->said)
        log_warning("slot %u: its function stays in the virtual machine: QEMU %u.%u.%u may abort "
                    "when one with MSI-X is unplugged; use --interrupts msi where drivers take "
                    "MSI, or --qmp ...,unplug-msix with a QEMU that has the fix",
                    n, p->version / 10000, p->version / VERSION_STEP % VERSION_STEP,
                    p->version % VERSION_STEP);
    s->said = true;
}

/* Since when the function that QEMU has is of no use; 0: it is of use. */
static uint64_t dead_ns(const plug_slot *s)
{
    if (s->view.state == PLUG_LOST || s->view.leaving)
        return 1;
    return s->view.state == PLUG_USED ? 0 : s->since_ns + GRACE_NS; /* it lost its connection */
}

static bool is_dead(const plug_slot *s, uint64_t now)
{
    uint64_t at = dead_ns(s);
    return at && now >= at;
}

static bool may_add(const plug_slot *s)
{
    return s->vm == PLUG_VM_ABSENT && s->view.state == PLUG_OFFERED && !s->view.leaving &&
           !s->ejected;
}

static void remove_it(plug *p, unsigned n, uint64_t now)
{
    plug_slot *s = &p->slot[n - 1];
    if (!may_delete(p, s)) {
        say_it_stays(p, s, n);
        let_go(p, n);
        return;
    }
    ask_to_delete(p, n);
    s->again_ns = now + AGAIN_NS;
}

/* What is to be done now, by what is known of both sides. */
static void settle(plug *p, unsigned n, uint64_t now)
{
    plug_slot *s = &p->slot[n - 1];
    if (s->until_ns && now >= s->until_ns) {
        log_warning("slot %u: the guest does not release the device: it is removed anyway", n);
        let_go(p, n);
    }
    if (s->vm == PLUG_VM_ABSENT || !p->ready)
        let_go(p, n);
    if (s->view.leaving && !s->answered && !s->until_ns)
        s->until_ns = now + PLUG_WAIT_MS * 1000000ull;
    if (!p->ready || now < s->again_ns)
        return;
    if (may_add(s))
        add(p, n);
    else if ((s->vm == PLUG_VM_PRESENT || s->vm == PLUG_VM_DELETING) && is_dead(s, now))
        remove_it(p, n, now); /* again, where a guest did not look */
}

void plug_look(plug *p, unsigned slot, plug_view view, uint64_t now)
{
    plug_slot *s;
    if (slot < 1 || slot > p->slots || view.state > PLUG_LOST)
        return;
    s = &p->slot[slot - 1];
    if (view.state != s->view.state)
        s->since_ns = now;
    if (view.state == PLUG_NONE || view.state == PLUG_LOST) /* no more the one that was removed */
        s->ejected = false;
    if (view.state == PLUG_USED)
        s->said = false;
    if (!view.leaving) { /* it is over, also where its box was lost meanwhile */
        s->answered = false;
        s->until_ns = 0;
    }
    s->view = view;
    if (view.state == PLUG_USED &&
        s->vm != PLUG_VM_ABSENT) /* the device was changed before it connected */
        s->msix |= view.msix;
    settle(p, slot, now);
}

/* ==== 4  Answers and events =================================================================== */

static bool is_part(int number)
{
    return number >= 0 && number < VERSION_STEP;
}

static void on_greeting(plug *p, json_t *qmp)
{
    int major = 0, minor = 0, micro = 0;
    (void)json_unpack(qmp, "{s:{s:{s:i, s:i, s:i}}}", "version", "qemu", "major", &major, "minor",
                      &minor, "micro", &micro);
    p->version = 0;
    if (is_part(major) && is_part(minor) && is_part(micro))
        p->version = (unsigned)(major * 10000 + minor * VERSION_STEP + micro);
    log_note("QMP: QEMU %d.%d.%d: functions with MSI are unplugged, those with MSI-X %s", major,
             minor, micro,
             p->set->unplugs_msix ? "too (unplug-msix)" : "stay, since this version may abort");
    if (p->version && p->version < FIRST_WITH_CLIENT)
        log_warning("QMP: QEMU before 10.1 has no vfio-user client");
    command(p, "qmp_capabilities", NULL, FOR_READY, 0);
    command(p, "migrate-set-capabilities",
            json_pack("{s:[{s:s, s:b}]}", "capabilities", "capability", "events", "state", 1),
            FOR_EVENTS, 0);
    command(p, "qom-list", json_pack("{s:s}", "path", "/machine/peripheral"), FOR_LIST, 0);
}

/* What an earlier process of ours, or this one before the connection was lost, has added. */
static void on_list(plug *p, const json_t *list, uint64_t now)
{
    size_t i;
    const json_t *item;
    for (unsigned n = 1; n <= p->slots; n++)
        p->slot[n - 1].vm = PLUG_VM_ABSENT;
    json_array_foreach(list, i, item)
    {
        bool marked;
        unsigned n = slot_of(p, json_string_value(json_object_get(item, "name")), &marked);
        plug_slot *s = n ? &p->slot[n - 1] : NULL;
        if (s) {
            s->vm = PLUG_VM_PRESENT;
            s->marked = marked;
            s->msix |= marked || (s->view.state == PLUG_USED && s->view.msix);
            s->since_ns = now;
        }
    }
    for (unsigned n = 1; n <= p->slots; n++)
        p->slot[n - 1].msix &= p->slot[n - 1].vm != PLUG_VM_ABSENT;
    command(p, "query-status", NULL, FOR_STATUS, 0);
}

/* A machine that waits for its state has the devices that it had at the source. */
static void on_status(plug *p, const json_t *value)
{
    const char *status = json_string_value(json_object_get(value, "status"));
    if (status && strcmp(status, "inmigrate") != 0)
        command(p, "query-migrate", NULL, FOR_MOVE, 0);
}

static void on_gone(plug *p, unsigned n)
{
    plug_slot *s = &p->slot[n - 1];
    bool asked = s->vm == PLUG_VM_DELETING;
    s->vm = PLUG_VM_ABSENT;
    s->msix = false;
    s->again_ns = 0;
    if (!asked && s->view.state != PLUG_LOST && s->view.state != PLUG_NONE) {
        s->ejected = true;
        log_note("slot %u: removed from the virtual machine by others: it is plugged in again when "
                 "it has been detached and attached",
                 n);
    } else {
        log_note("slot %u: unplugged", n);
    }
    let_go(p, n);
}

static void on_error(plug *p, unsigned purpose, unsigned n, const json_t *error, uint64_t now)
{
    const char *text = json_string_value(json_object_get(error, "desc"));
    const char *class = json_string_value(json_object_get(error, "class"));
    plug_slot *s = n ? &p->slot[n - 1] : NULL;
    if (purpose == FOR_ADD && s) {
        if (s->again_ns == 0)
            log_error("slot %u: QEMU refuses the function: %s", n, text ? text : "no reason");
        s->vm = PLUG_VM_ABSENT;
        s->again_ns = now + AGAIN_NS;
    } else if (purpose == FOR_DELETE && s && class && !strcmp(class, "DeviceNotFound")) {
        on_gone(p, n);
    } else if (purpose == FOR_DELETE && s) { /* it is being removed, or was a moment ago */
        log_debug("slot %u: device_del: %s", n, text ? text : "no reason");
    } else if (purpose == FOR_LIST || purpose == FOR_READY) {
        log_error("QMP: %s", text ? text : "refused");
    } else if (purpose == FOR_MOVE) {
        p->ready = true;
    }
}

static bool any_function(const plug *p)
{
    bool any = false;
    for (unsigned i = 0; i < p->slots; i++)
        any |= p->slot[i].vm != PLUG_VM_ABSENT;
    return any;
}

static bool is_under_way(const char *status)
{
    static const char *const steps[] = { "setup", "active", "wait-unplug", "pre-switchover",
                                         "device" };
    bool any = false;
    for (unsigned i = 0; status && i < sizeof steps / sizeof steps[0]; i++)
        any |= !strcmp(status, steps[i]);
    return any;
}

/* V-48: QEMU moves the machine without the device, which hangs at the destination. */
static void cancel_migration(plug *p)
{
    log_error("the virtual machine is being migrated with remote devices: cancelled; detach them "
              "first, attach them at the destination");
    command(p, "migrate_cancel", NULL, FOR_CANCEL, 0);
}

/* One that began when QMP was not connected, or was so since a moment.  What is over is not of
   this connection, and may be how the machine came here. */
static void on_migration_status(plug *p, const json_t *value)
{
    p->ready = true;
    if (any_function(p) && is_under_way(json_string_value(json_object_get(value, "status"))))
        cancel_migration(p);
}

static void on_migration(plug *p, const char *status)
{
    if (!status || !p->ready || !any_function(p))
        return;
    if (!strcmp(status, "setup") || !strcmp(status, "active"))
        cancel_migration(p);
    else if (!strcmp(status, "completed"))
        log_error("the virtual machine was migrated with remote devices, which do not work there: "
                  "continue it here, or restart it there");
}

static void on_return(plug *p, unsigned purpose, unsigned n, const json_t *value, uint64_t now)
{
    if (purpose == FOR_LIST) {
        on_list(p, value, now);
    } else if (purpose == FOR_STATUS) {
        on_status(p, value);
    } else if (purpose == FOR_MOVE) {
        on_migration_status(p, value);
    } else if (purpose == FOR_ADD && n && p->slot[n - 1].vm == PLUG_VM_ADDING) {
        p->slot[n - 1].vm = PLUG_VM_PRESENT;
        p->slot[n - 1].since_ns = now;
        p->slot[n - 1].again_ns = 0;
        log_note("slot %u: plugged in%s", n,
                 may_delete(p, &p->slot[n - 1]) ? "" : ", with MSI-X: it cannot be unplugged");
    }
}

static void on_event(plug *p, const char *name, const json_t *data)
{
    const char *device = json_string_value(json_object_get(data, "device"));
    bool marked = false;
    unsigned n = slot_of(p, device, &marked);
    if (n && marked != p->slot[n - 1].marked && p->slot[n - 1].vm != PLUG_VM_ABSENT)
        n = 0; /* another function of that slot, which is not there any more */
    if (!strcmp(name, "DEVICE_DELETED") && n)
        on_gone(p, n);
    else if (!strcmp(name, "DEVICE_UNPLUG_GUEST_ERROR") && n)
        log_warning("slot %u: the guest refuses to release the device", n);
    else if (!strcmp(name, "RESUME") && !p->ready)
        command(p, "query-status", NULL, FOR_STATUS, 0);
    else if (!strcmp(name, "MIGRATION"))
        on_migration(p, json_string_value(json_object_get(data, "status")));
}

bool plug_hear(plug *p, const char *text, size_t bytes, uint64_t now)
{
    json_t *m = json_loadb(text, bytes, 0, NULL);
    json_t *greeting = json_object_get(m, "QMP");
    const json_t *error = json_object_get(m, "error"), *value = json_object_get(m, "return");
    const char *event = json_string_value(json_object_get(m, "event"));
    json_int_t id = json_integer_value(json_object_get(m, "id"));
    unsigned purpose = (unsigned)(id >> 8 & 0xff), n = (unsigned)(id & 0xff);
    n = n <= p->slots ? n : 0;
    if (greeting)
        on_greeting(p, greeting);
    else if (event)
        on_event(p, event, json_object_get(m, "data"));
    else if (error)
        on_error(p, purpose, n, error, now);
    else if (value)
        on_return(p, purpose, n, value, now);
    json_decref(m);
    for (n = 1; n <= p->slots; n++)
        settle(p, n, now);
    return greeting || event || error || value;
}

/* ==== 5  Life ================================================================================= */

void plug_init(plug *p, const plug_settings *set, unsigned slots, const char *path)
{
    memset(p, 0, sizeof *p);
    p->set = set;
    p->slots = slots < PLUG_SLOTS ? slots : PLUG_SLOTS;
    p->path = path;
}

void plug_open(plug *p)
{
    p->ready = false;
}

void plug_lost(plug *p, uint64_t now)
{
    p->ready = false;
    p->version = 0;
    for (unsigned n = 1; n <= p->slots; n++) {
        plug_slot *s = &p->slot[n - 1];
        s->vm = PLUG_VM_ABSENT;
        s->ejected = s->said = false;
        s->again_ns = 0;
        settle(p, n, now);
    }
}

void plug_tick(plug *p, uint64_t now)
{
    for (unsigned n = 1; n <= p->slots; n++)
        settle(p, n, now);
}

static uint64_t earlier(uint64_t next, uint64_t at)
{
    return at && at < next ? at : next;
}

uint64_t plug_next_ns(const plug *p)
{
    uint64_t next = NEVER_NS;
    for (unsigned i = 0; i < p->slots; i++) {
        const plug_slot *s = &p->slot[i];
        uint64_t at = dead_ns(s);
        next = earlier(next, s->until_ns);
        if (!p->ready)
            continue;
        if (may_add(s))
            next = earlier(next, s->again_ns);
        if (at && (s->vm == PLUG_VM_PRESENT || s->vm == PLUG_VM_DELETING) &&
            (may_delete(p, s) || !s->said))
            next = earlier(next, at > s->again_ns ? at : s->again_ns);
    }
    return next;
}
