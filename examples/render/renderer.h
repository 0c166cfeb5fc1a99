/* renderer.h - virglrenderer behind the messages of render_wire.h
   SPDX-License-Identifier: MIT

   virglrenderer's state is the process's own, and its calls block: so there is one renderer in a
   process, and a process for each display adapter. */
#ifndef RENDERER_H_INCLUDED
#define RENDERER_H_INCLUDED

/* Begin, in software or on the GPU behind the DRM node that is open as `node`, which becomes the
   renderer's (below 0: software), and draw once, so that all that the libraries look for is there
   before the sandbox.  0, or -1 after a message. */
int renderer_open(int node);
/* Serve until the other end is gone: 0; -1 after a message: it broke a rule of render_wire.h. */
int renderer_serve(int socket, unsigned char *memory);
/* "virglrenderer", or what is missing. */
const char *renderer_name(void);

#endif /* RENDERER_H_INCLUDED */
