/* leak.c - the control: code as it must not be, which memcheck has to see.  One way for each name:
   a branch, an address, and a comparison that ends early, all by a secret key; `none` does what one
   may do with a key. */
#include <sodium.h>
#include <string.h>

int main(int argc, char **argv)
{
    static volatile unsigned char table[256];
    static volatile unsigned found; /* else the compiler would remove the leak */
    unsigned char key[32], other[32] = { 0 }, seen[32];
    const char *way = argc > 1 ? argv[1] : "";
    if (sodium_init() < 0)
        return 2;
    randombytes_buf(key, sizeof key);
    if (strcmp(way, "branch") == 0) {
        for (unsigned i = 0; i < sizeof key; i++) {
            if (key[i] & 1)
                found = found + 1;
        }
    } else if (strcmp(way, "address") == 0) {
        for (unsigned i = 0; i < sizeof key; i++)
            found = found + table[key[i]];
    } else if (strcmp(way, "compare") == 0) {
        found = memcmp(key, other, sizeof key) == 0;
    } else {
        found = sodium_memcmp(key, other, sizeof key) == 0;
        crypto_generichash(seen, sizeof seen, other, sizeof other, key, sizeof key);
        sodium_memzero(seen, sizeof seen);
    }
    sodium_memzero(key, sizeof key);
    return 0;
}
