/* model_paper.c - dxpu model --paper: the figures of the paper beside the model's, and the errors
   SPDX-License-Identifier: MIT */
#include "command.h"
#include "model_command.h"

#include "paper.h"

#include <math.h>
#include <stdio.h>

static double off(const paper_cell *c)
{
    return 100 * (c->model / c->paper - 1);
}

static const char *const group_name[PAPER_GROUPS] = { "predicted", "calibration", "unmeasured" };

static json_t *error_json(const paper_cell *cells, unsigned count, unsigned table)
{
    json_t *o = json_object();
    model_set_text(o, "table", paper_table(table) ? paper_table(table) : "all");
    for (unsigned group = 0; group < PAPER_GROUPS; group++) {
        paper_error e = paper_error_of(cells, count, paper_table(table), group);
        json_t *of = json_object();
        json_object_set_new(of, "cells", json_integer(e.cells));
        if (e.cells) {
            model_set_real(of, "mean_error", e.mean);
            model_set_real(of, "mean_signed_error", e.mean_signed);
            model_set_real(of, "worst_error", e.worst);
            model_set_text(of, "worst_cell", e.worst_cell->what);
        }
        json_object_set_new(o, group_name[group], of);
    }
    if (paper_note(table))
        model_set_text(o, "note", paper_note(table));
    return o;
}

static int paper_json(const paper_cell *cells, unsigned count)
{
    json_t *o = json_object(), *list = json_array();
    for (unsigned i = 0; i < count; i++) {
        json_t *c = json_object();
        model_set_text(c, "table", cells[i].table);
        model_set_text(c, "cell", cells[i].what);
        model_set_text(c, "unit", cells[i].unit);
        model_set_real(c, "paper", cells[i].paper);
        model_set_real(c, "model", cells[i].model);
        model_set_text(c, "origin", paper_origin[cells[i].origin]);
        json_object_set_new(c, "calibrated", json_boolean(cells[i].calibrated));
        json_array_append_new(list, c);
    }
    json_object_set_new(o, "cells", list);
    list = json_array();
    for (unsigned i = 0;; i++) {
        json_array_append_new(list, error_json(cells, count, i));
        if (!paper_table(i))
            break;
    }
    json_object_set_new(o, "errors", list);
    return model_print_json(o);
}

static void print_error(const char *name, const paper_error *e)
{
    printf("%-30s %5u", name, e->cells);
    if (e->cells)
        printf("  %5.1f %%  %+5.1f %%  %5.1f %%  %s\n", 100 * e->mean, 100 * e->mean_signed,
               100 * e->worst, e->worst_cell->what);
    else
        putchar('\n');
}

static void paper_errors(const paper_cell *cells, unsigned count)
{
    static const char *const rest[PAPER_GROUPS] = { NULL, "apart: calibrated by",
                                                    "apart: not measured" };
    printf("\nerrors, measured and predicted  cells    mean   signed    worst\n");
    for (unsigned i = 0;; i++) {
        const char *table = paper_table(i);
        paper_error e = paper_error_of(cells, count, table, PAPER_PREDICTED);
        print_error(table ? table : "all", &e);
        if (!table)
            break;
    }
    for (unsigned group = PAPER_CALIBRATION; group < PAPER_GROUPS; group++) {
        paper_error e = paper_error_of(cells, count, NULL, group);
        print_error(rest[group], &e);
    }
}

int model_paper(const model_request *r)
{
    static paper_cell cells[PAPER_CELLS_MAX];
    paper_settings set = { r->m.reads_per_kernel, 0 };
    unsigned count = paper_cells(&set, cells);
    dxpu_model own;
    dxpu_model_default(&own);
    if (r->json)
        return paper_json(cells, count);
    printf(
        "table        cell                                        paper    model          error  "
        "the paper's is\n");
    for (unsigned i = 0; i < count; i++)
        printf("%-12s %-40s %8.2f %8.2f %-5s %+6.1f %%  %s%s\n", cells[i].table, cells[i].what,
               cells[i].paper, cells[i].model, cells[i].unit, off(&cells[i]),
               paper_origin[cells[i].origin], cells[i].calibrated ? ", calibrated by" : "");
    paper_errors(cells, count);
    printf("\nFour numbers are calibrated, by the cells marked; no cell has one of its own.%s\n",
           fabs(set.reads_per_kernel - own.reads_per_kernel) > 0 ? " --waits is in place of one."
                                                                 : "");
    for (unsigned i = 0; paper_table(i); i++)
        printf("%s: %s.\n", paper_table(i), paper_note(i));
    return EXIT_ALL;
}
