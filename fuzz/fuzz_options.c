/* Fuzz target: any bytes as a configuration file, with a row of each kind of option.  Values that
   are accepted are within their ranges; what is not is reported.
   libFuzzer: -max_len=1200 */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include "input_path.h"
#include "options.h"
#include "quiet.h"

#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static option_list list;
    bool flag = false;
    uint64_t number = 5, bytes = 4096, seconds = 1;
    double real = 1;
    const char *text = NULL;
    unsigned pick = 0;
    char name[] = "fuzz", config[48], *arguments[] = { name, config, NULL };
    const option_row rows[] = {
        { "flag", NULL, "a flag", OPTION_FLAG, &flag, 0, 0 },
        { "number", "N", "a number", OPTION_NUMBER, &number, 5, 1000 },
        { "size", "BYTES", "a size", OPTION_SIZE, &bytes, 4096, 1 << 30 },
        { "text", "TEXT", "a text", OPTION_TEXT, &text, 0, 0 },
        { "choice", "one|two|three", "a choice", OPTION_CHOICE, &pick, 0, 0 },
        { "wait", "[S]", "a time", OPTION_SECONDS, &seconds, 1, 3600 },
        { "real", "X", "a real number", OPTION_REAL, &real, 500, 1500 },
        { "slot", "N=KIND[,KEY=VALUE]...", "a list", OPTION_LIST, &list, 1, 0 },
    };
    const option_program program = { "fuzz", "",   "", rows, sizeof rows / sizeof *rows,
                                     "",     NULL, 0,  NULL };
    int rc;
    if (!size)
        return 0;
    snprintf(config, sizeof config, "--config=%s", input_path(data, size));
    quiet_errors = 0;
    rc = options_parse(&program, 2, arguments, NULL);
    must((rc == OPTIONS_WRONG) == (quiet_errors != 0) && rc != OPTIONS_SHOWN);
    must(number >= 5 && number <= 1000 && bytes >= 4096 && bytes <= 1 << 30 && pick < 3 &&
         seconds >= 1 && seconds <= 3600 && real >= 0.5 && real <= 1.5);
    while (list.count) {
        const char *one = list.text[--list.count];
        must(strlen(one) < 4096);
        free((void *)(uintptr_t)one);
    }
    free((void *)(uintptr_t)text); /* the file's, as there is none on the command line */
    return 0;
}
