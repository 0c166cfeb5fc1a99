/* Replay for any fuzz target without libFuzzer: runs once every file named, and every file of each
   directory named.  Prints how many; a failure aborts after naming its input. */
#define _POSIX_C_SOURCE 200809L
#include <dirent.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static unsigned inputs;

static int run_file(const char *path, size_t bytes)
{
    uint8_t *data = (uint8_t *)malloc(bytes ? bytes : 1);
    FILE *f = fopen(path, "rb");
    size_t got = f && data ? fread(data, 1, bytes, f) : 0;
    if (f)
        fclose(f);
    if (!f || !data || got != bytes) {
        fprintf(stderr, "cannot read %s\n", path);
        free(data);
        return 2;
    }
    fprintf(stderr, "%s\n", path); /* the last line before an abort names the input */
    LLVMFuzzerTestOneInput(data, bytes);
    free(data);
    inputs++;
    return 0;
}

static int run_path(const char *path)
{
    struct stat st;
    struct dirent *entry;
    DIR *directory;
    int rc = 0;
    if (stat(path, &st) != 0) {
        fprintf(stderr, "no such file: %s\n", path);
        return 2;
    }
    if (!S_ISDIR(st.st_mode))
        return run_file(path, (size_t)st.st_size);
    directory = opendir(path);
    if (!directory)
        return 2;
    while (rc == 0 && (entry = readdir(directory)) != NULL) {
        char below[4096];
        if (entry->d_name[0] == '.')
            continue;
        if (snprintf(below, sizeof below, "%s/%s", path, entry->d_name) >= (int)sizeof below)
            rc = 2;
        else
            rc = run_path(below);
    }
    closedir(directory);
    return rc;
}

int main(int argc, char **argv)
{
    int i, rc = 0;
    if (argc < 2) {
        fprintf(stderr, "usage: %s FILE-OR-DIRECTORY...\n", argv[0]);
        return 2;
    }
    for (i = 1; i < argc && rc == 0; i++)
        rc = run_path(argv[i]);
    printf("%u inputs\n", inputs);
    return rc ? rc : inputs ? 0 : 2;
}
