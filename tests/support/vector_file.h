/* Reads the vector files; their format is in spec/vectors/README.md.  Included after cmocka. */
#ifndef VECTOR_FILE_H
#define VECTOR_FILE_H

enum { LINE_MAX_BYTES = 512, KEYS_MAX = 96 };

typedef struct vector {
    char name[64];
    uint8_t bytes[8192];
    size_t len;
    unsigned keys;
    char key[KEYS_MAX][20];
    char value[KEYS_MAX][LINE_MAX_BYTES];
} vector;

static const char *vector_folder = "spec/vectors";

static inline const char *vector_get(const vector *x, const char *key)
{
    for (unsigned i = 0; i < x->keys; i++)
        if (strcmp(x->key[i], key) == 0)
            return x->value[i];
    return NULL;
}

static inline unsigned vector_nibble(char c)
{
    const char *digits = "0123456789abcdef", *at = strchr(digits, c);
    if (!c || !at)
        fail_msg("'%c' is not a hexadecimal digit", c);
    return (unsigned)(at - digits);
}

/* Append the bytes that the tokens of `text` stand for. */
static inline void vector_hex(const char *text, uint8_t *out, size_t cap, size_t *len)
{
    while (*text) {
        if (*text == ' ') {
            text++;
            continue;
        }
        unsigned byte = vector_nibble(text[0]) << 4 | vector_nibble(text[1]);
        long n = 1;
        text += 2;
        if (*text == '*') {
            char *end;
            n = strtol(text + 1, &end, 10);
            text = end;
        }
        for (; n > 0; n--) {
            assert_true(*len < cap);
            out[(*len)++] = (uint8_t)byte;
        }
    }
}

static inline void vector_line(vector *x, char *line)
{
    char *mid = strstr(line, " =");
    size_t i;
    if (!mid)
        fail_msg("no ' = ' in: %s", line);
    *mid = 0;
    mid += mid[2] == ' ' ? 3 : 2;
    if (strcmp(line, "name") == 0) {
        memset(x, 0, sizeof *x);
        snprintf(x->name, sizeof x->name, "%.63s", mid);
        return;
    }
    if (strcmp(line, "hex") == 0) {
        vector_hex(mid, x->bytes, sizeof x->bytes, &x->len);
        return;
    }
    if (vector_get(x, line))
        fail_msg("%s: %s stands twice", x->name, line);
    i = x->keys++;
    assert_true(i < KEYS_MAX && strlen(line) < sizeof x->key[0]);
    strcpy(x->key[i], line);
    snprintf(x->value[i], sizeof x->value[i], "%.*s", LINE_MAX_BYTES - 1, mid);
}

/* Reads a file of the directory into *x, in order, and calls `each` for every one.
   Returns how many there were. */
static inline unsigned vector_run(const char *file, vector *x, void (*each)(void))
{
    char path[512], line[LINE_MAX_BYTES];
    unsigned count = 0;
    FILE *f;
    snprintf(path, sizeof path, "%s/%s", vector_folder, file);
    f = fopen(path, "r");
    if (!f)
        fail_msg("cannot open %s", path);
    memset(x, 0, sizeof *x);
    while (fgets(line, sizeof line, f)) {
        assert_non_null(strchr(line, '\n'));
        line[strcspn(line, "\n")] = 0;
        if (!line[0] || line[0] == '#')
            continue;
        if (strncmp(line, "name =", 6) == 0 && count++)
            each();
        vector_line(x, line);
    }
    fclose(f);
    assert_true(x->name[0]);
    each();
    return count;
}

static inline void vector_find_folder(int argc, char **argv)
{
    if (getenv("DXPU_VECTORS"))
        vector_folder = getenv("DXPU_VECTORS");
    if (argc > 1)
        vector_folder = argv[1];
}

#endif
