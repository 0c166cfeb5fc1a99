/* model_command.h - dxpu model, between its parts
   SPDX-License-Identifier: MIT */
#ifndef DXPU_CLI_MODEL_COMMAND_H
#define DXPU_CLI_MODEL_COMMAND_H

#include "trace.h"

#include <jansson.h>

typedef struct model_request {
    dxpu_model m;
    perf_work w;
    const char *trace;
    bool json, paper, simulate, sweep;
} model_request;

/* Exit statuses, all printed. */
int model_paper(const model_request *r);
int model_simulate(const model_request *r);

void model_set_real(json_t *o, const char *key, double value);
void model_set_text(json_t *o, const char *key, const char *text);
/* Prints it on one line and lets go of it; returns EXIT_ALL. */
int model_print_json(json_t *o);

#endif
