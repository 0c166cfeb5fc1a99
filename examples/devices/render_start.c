/* render_start.c - see render_start.h
   SPDX-License-Identifier: MIT */
#include "render_start.h"
#include "launcher.h"
#include "log.h"
#include "render_wire.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

/* Renderers of one node are alike: it is tried once for all slots that follow one another. */
static bool works(const char *const *words, const char *node)
{
    static char last[4096];
    const char *name = node ? node : "software";
    if (!strcmp(last, name))
        return true;
    if (launcher_try(words)) {
        log_error("--render: dxpu-render cannot render (%s), see above; the unit of dxpu-box "
                  "needs a drop-in for it, see dxpu-box(1); without --render virtio-gpu has no 3D",
                  name);
        return false;
    }
    snprintf(last, sizeof last, "%s", name);
    return true;
}

int render_start(const char *node, bool open)
{
    static char path[4096];
    const char *words[8] = { path, "-qq" };
    unsigned count = 2;
    int launcher;
    if (!launcher_beside("dxpu-render", path, sizeof path)) {
        log_error("--render: no dxpu-render beside this program: %s", strerror(errno));
        return -1;
    }
    if (node) {
        words[count++] = "--render-node";
        words[count++] = node;
    }
    if (open)
        words[count++] = "--no-sandbox";
    words[count] = "--check";
    if (!works(words, node))
        return -1;
    words[count] = NULL;
    launcher = launcher_start(words, RENDER_MEMORY_BYTES);
    if (launcher < 0)
        log_error("--render: no process that starts renderers: %s", strerror(errno));
    return launcher;
}
