/* render_program.h - for tests: dxpu-render of the same build, without sanitizers
   SPDX-License-Identifier: MIT

   Sanitizers do not go with what compiles shaders, so a test of build/san has build/dxpu-render. */
#ifndef RENDER_PROGRAM_H_INCLUDED
#define RENDER_PROGRAM_H_INCLUDED

#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

static inline const char *render_program(void)
{
    static char path[4096];
    ssize_t n = readlink("/proc/self/exe", path, sizeof path - 32);
    char *tests;
    path[n < 0 ? 0 : n] = '\0';
    tests = strstr(path, "/tests/");
    for (char *next = tests; next; next = strstr(next + 1, "/tests/"))
        tests = next;
    if (!tests)
        return "dxpu-render";
    if (tests - path > 4 && !memcmp(tests - 4, "/san", 4))
        tests -= 4;
    memcpy(tests, "/dxpu-render", sizeof "/dxpu-render");
    return path;
}

/* Can it render here?  When not, its reason is on standard error. */
static inline bool render_works(void)
{
    int status = 0;
    pid_t child = fork();
    if (child == 0) {
        (void)execl(render_program(), "dxpu-render", "--check", "-q", (char *)NULL);
        perror(render_program());
        _exit(127);
    }
    if (waitpid(child, &status, 0) == child && WIFEXITED(status) && !WEXITSTATUS(status))
        return true;
    printf("skip rendering: dxpu-render --check has failed, see above\n");
    return false;
}

#endif /* RENDER_PROGRAM_H_INCLUDED */
