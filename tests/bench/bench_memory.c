/* Memory of a channel with the default credits: all of it, and its state, which is what remains
   without the buffers that the caller chooses (the queues of the classes, the reorder buffer). */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE /* clock_gettime */
#endif
#include "dxpu.h"

#include "bench.h"

static const uint32_t windows[] = { 16, 64, 256 };

static void measure(uint32_t window)
{
    dxpu_channel ch;
    dxpu_channel_config cfg;
    char row[64];
    uint8_t *mem;
    size_t all, buffers;
    dxpu_channel_config_default(&cfg);
    cfg.window_frames = window;
    cfg.local_id = 1;
    cfg.epoch = 1;
    all = dxpu_channel_bytes(&cfg);
    mem = malloc(all);
    bench_must(mem && dxpu_channel_init(&ch, &cfg, mem, all) == DXPU_OK, "a channel");
    buffers = (size_t)(mem + all - ch.rx.early_bodies);
    for (unsigned i = 0; i < DXPU_CLASSES; i++)
        buffers +=
            ch.tx.queue[i].cap + ch.rx.queue[i].cap +
            (ch.tx.queue[i].header_max + ch.rx.queue[i].header_max) * sizeof *ch.tx.queue[i].items;
    snprintf(row, sizeof row, "memory channel of %u frames", window);
    bench_result(row, (double)(sizeof ch + all), 0);
    snprintf(row, sizeof row, "memory state of %u frames", window);
    bench_result(row, (double)(sizeof ch + all - buffers), 6144 + 24.0 * window);
    free(mem);
}

int main(void)
{
    dxpu_channel_config cfg;
    dxpu_channel_config_default(&cfg);
    bench_result("memory sizeof(dxpu_channel)", (double)sizeof(dxpu_channel), 0);
    bench_result("memory channel by default",
                 (double)(sizeof(dxpu_channel) + dxpu_channel_bytes(&cfg)), 0);
    for (unsigned i = 0; i < sizeof windows / sizeof windows[0]; i++)
        measure(windows[i]);
    return 0;
}
