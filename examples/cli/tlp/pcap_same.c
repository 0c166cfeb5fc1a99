/* pcap_same.c - did the TLPs of one capture arrive as another one shows?
   SPDX-License-Identifier: MIT

   Each TLP that arrived is matched with the first one sent that has the same bytes and was not yet
   matched.  What finds only matched ones was doubled; what finds none was altered, as long as
   something sent is left without a match, else it is foreign. */
#include "pcap_same.h"

#include "command.h"
#include "log.h"
#include "print_json.h"

#include "dxpu_pcap.h"

#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* One complete TLP. */
typedef struct item {
    uint8_t *bytes;
    size_t len;
    size_t order;     /* in its class */
    size_t next_free; /* in the first of equal items: how many of them are matched */
} item;

typedef struct item_list {
    item *items;
    size_t count, capacity;
} item_list;

/* The TLPs of one file. */
typedef struct tlp_file {
    item_list classes[DXPU_CLASSES];
    unsigned long truncated, refused, other;
} tlp_file;

typedef struct verdict {
    size_t sent, delivered, missing, doubled, altered, reordered, foreign;
} verdict;

static void *grown(void *p, size_t bytes)
{
    void *q = realloc(p, bytes);
    if (!q)
        out_of_memory();
    return q;
}

static void list_add(item_list *l, dxpu_bytes tlp)
{
    item *i;
    if (l->count == l->capacity) {
        l->capacity = l->capacity ? l->capacity * 2 : 64;
        l->items = grown(l->items, l->capacity * sizeof *l->items);
    }
    i = &l->items[l->count];
    i->bytes = grown(NULL, tlp.len);
    memcpy(i->bytes, tlp.ptr, tlp.len);
    i->len = tlp.len;
    i->order = l->count++;
    i->next_free = 0;
}

static void file_add(tlp_file *f, const dxpu_pcap_packet *p)
{
    dxpu_tlp_shape shape;
    dxpu_tlp t;
    if (p->kind != DXPU_PCAP_TLP)
        f->other++;
    else if (dxpu_tlp_decode_header(p->bytes, &t) != DXPU_OK ||
             dxpu_tlp_measure(p->bytes, &shape) != DXPU_OK || p->bytes.len > shape.total_bytes)
        f->refused++;
    else if (p->bytes.len < shape.total_bytes)
        f->truncated++;
    else
        list_add(&f->classes[shape.cls], p->bytes);
}

static bool file_read(tlp_file *f, const char *name)
{
    char why[DXPU_PCAP_WHY_BYTES];
    dxpu_pcap_packet p;
    int rc = -1;
    dxpu_pcap_reader *r = dxpu_pcap_open(name, why);
    memset(f, 0, sizeof *f);
    while (r && (rc = dxpu_pcap_next(r, &p, why)) > 0)
        file_add(f, &p);
    dxpu_pcap_close(r);
    if (rc < 0)
        log_error("%s: %s", name, why);
    return rc == 0;
}

static void file_free(tlp_file *f)
{
    for (unsigned c = 0; c < DXPU_CLASSES; c++) {
        for (size_t i = 0; i < f->classes[c].count; i++)
            free(f->classes[c].items[i].bytes);
        free(f->classes[c].items);
    }
}

static int compare_bytes(const item *a, const item *b)
{
    if (a->len != b->len)
        return a->len < b->len ? -1 : 1;
    return memcmp(a->bytes, b->bytes, a->len);
}

static int compare_items(const void *a, const void *b)
{
    const item *x = a, *y = b;
    int c = compare_bytes(x, y);
    return c ? c : x->order < y->order ? -1 : x->order > y->order;
}

/* The first of the items equal to `b`, in sorted `l`; l->count when there is none. */
static size_t first_equal(const item_list *l, const item *b)
{
    size_t low = 0, high = l->count;
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        if (compare_bytes(&l->items[middle], b) < 0)
            low = middle + 1;
        else
            high = middle;
    }
    return low < l->count && compare_bytes(&l->items[low], b) == 0 ? low : l->count;
}

static verdict compare_class(item_list *sent, const item_list *delivered)
{
    verdict v = { sent->count, delivered->count, 0, 0, 0, 0, 0 };
    size_t matched = 0, unknown = 0, furthest = 0;
    if (sent->count)
        qsort(sent->items, sent->count, sizeof *sent->items, compare_items);
    for (size_t i = 0; i < delivered->count; i++) {
        const item *b = &delivered->items[i];
        size_t first = first_equal(sent, b), at;
        if (first == sent->count) {
            unknown++;
            continue;
        }
        at = first + sent->items[first].next_free;
        if (at >= sent->count || compare_bytes(&sent->items[at], b) != 0) {
            v.doubled++;
            continue;
        }
        sent->items[first].next_free++;
        matched++;
        if (sent->items[at].order < furthest)
            v.reordered++;
        else
            furthest = sent->items[at].order;
    }
    v.missing = sent->count - matched;
    v.altered = unknown < v.missing ? unknown : v.missing;
    v.missing -= v.altered;
    v.foreign = unknown - v.altered;
    return v;
}

static bool is_same(const verdict *v)
{
    return !(v->missing || v->doubled || v->altered || v->reordered || v->foreign);
}

static json_t *verdict_json(const verdict *v)
{
    return json_pack("{s:I, s:I, s:I, s:I, s:I, s:I, s:I}", "sent", (json_int_t)v->sent,
                     "delivered", (json_int_t)v->delivered, "missing", (json_int_t)v->missing,
                     "doubled", (json_int_t)v->doubled, "altered", (json_int_t)v->altered,
                     "reordered", (json_int_t)v->reordered, "foreign", (json_int_t)v->foreign);
}

static json_t *left_out_json(const tlp_file *f)
{
    return json_pack("{s:I, s:I, s:I}", "truncated", (json_int_t)f->truncated, "refused",
                     (json_int_t)f->refused, "other", (json_int_t)f->other);
}

/* Complete TLPs in both files. */
static size_t compared(const verdict *v)
{
    size_t n = 0;
    for (unsigned c = 0; c < DXPU_CLASSES; c++)
        n += v[c].sent + v[c].delivered;
    return n;
}

static void print_object(const verdict *v, const tlp_file *a, const tlp_file *b, bool same)
{
    json_t *o = json_object();
    json_object_set_new(o, "same", json_boolean(same));
    for (unsigned c = 0; c < DXPU_CLASSES; c++)
        json_object_set_new(o, dxpu_class_name(c), verdict_json(&v[c]));
    json_object_set_new(o, "left_out_sent", left_out_json(a));
    json_object_set_new(o, "left_out_delivered", left_out_json(b));
    print_json(o, 0);
}

static void print_left_out(const char *which, const tlp_file *f)
{
    if (f->truncated || f->refused || f->other)
        printf("left out of %s: %lu truncated, %lu refused, %lu packets that are not TLPs\n", which,
               f->truncated, f->refused, f->other);
}

static void print_text(const verdict *v, const tlp_file *a, const tlp_file *b, bool same)
{
    printf("%-12s %9s %9s %9s %9s %9s %9s %9s\n", "class", "sent", "delivered", "missing",
           "doubled", "altered", "reordered", "foreign");
    for (unsigned c = 0; c < DXPU_CLASSES; c++)
        printf("%-12s %9zu %9zu %9zu %9zu %9zu %9zu %9zu\n", dxpu_class_name(c), v[c].sent,
               v[c].delivered, v[c].missing, v[c].doubled, v[c].altered, v[c].reordered,
               v[c].foreign);
    print_left_out("sent", a);
    print_left_out("delivered", b);
    puts(same ? "identical" : compared(v) ? "different" : "nothing to compare");
}

int pcap_same(const char *sent, const char *delivered, bool json)
{
    tlp_file a, b;
    verdict v[DXPU_CLASSES];
    bool same = true, read = file_read(&a, sent);
    read = file_read(&b, delivered) && read;
    for (unsigned c = 0; read && c < DXPU_CLASSES; c++) {
        v[c] = compare_class(&a.classes[c], &b.classes[c]);
        same = same && is_same(&v[c]);
    }
    same = same && (!read || compared(v)); /* nothing is the same as nothing: it proves nothing */
    if (read && !compared(v))
        log_error("nothing to compare: no complete TLP in either file");
    if (read)
        (json ? print_object : print_text)(v, &a, &b, same);
    file_free(&a);
    file_free(&b);
    return !read ? EXIT_USAGE : same ? EXIT_ALL : EXIT_REFUSED;
}
