/* render_start.h - has dxpu-render started for display adapters of this program
   SPDX-License-Identifier: MIT */
#ifndef RENDER_START_H_INCLUDED
#define RENDER_START_H_INCLUDED

#include <stdbool.h>

/* A launcher (launcher.h) of dxpu-render, from the directory of the calling program, for
   device_settings.renderer; node: of a GPU, NULL: in software; open: without its sandbox.  It draws
   once before, so that what is missing is known at the start.  Before sandbox_start(), and before
   there are threads.  -1 after a message. */
int render_start(const char *node, bool open);

#endif /* RENDER_START_H_INCLUDED */
