/* Fuzz target: any bytes as a file of `dxpu model --trace`: rows of Nsight Systems, or a profile of
   libdxpu-inject.  What is taken has numbers that are numbers, in order of their start, and the
   model makes times of them, and no negative ones.
   libFuzzer: -max_len=2048 */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include "input.h"
#include "quiet.h"

#include "trace.h"

#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void check_words(const char *words)
{
    must(strlen(words) < PERF_WORDS);
    for (; *words; words++)
        must(*words >= ' ' && *words <= '~');
}

static void check(const perf_work *w)
{
    dxpu_model m;
    perf_change changes[PERF_CHANGES];
    double native;
    for (size_t i = 0; i < w->ops; i++) {
        const perf_op *op = &w->op[i];
        must(op->start_us >= 0 && op->duration_us >= 0 && op->bytes >= 0);
        must(op->stream < w->streams && w->streams <= PERF_STREAMS_MAX);
        must(op->kind < DXPU_MODEL_KINDS && (!i || w->op[i - 1].start_us <= op->start_us));
    }
    must(!w->op == !w->ops && w->warnings <= PERF_WARNINGS_MAX);
    for (unsigned i = 0; i < w->warnings; i++)
        check_words(w->warning[i]);
    dxpu_model_default(&m);
    native = perf_native_us(&m, w, 1);
    must(!(native < 0) && !(perf_extra_us(&m, w, 1, PERF_ALL_KINDS) < 0));
    (void)perf_performance(&m, w, 1);
    (void)perf_rtt_for(&m, w, 0.9, 100);
    perf_changes(&m, w, changes);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static perf_work w;
    FILE *file = input_file(data, size);
    const char *why;
    must(file != NULL);
    why = perf_work_read_file(file, &w);
    fclose(file);
    if (why) {
        must(why[0] && !w.op);
        check_words(why);
    } else {
        check(&w);
    }
    perf_work_free(&w);
    return 0;
}
