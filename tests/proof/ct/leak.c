/* leak.c - the control: code as it must not be, which memcheck has to see.  One function for each
   way: a branch, an address, and a comparison that ends early, all by a secret key; `none` does
   what one may do with a key. */
#include <sodium.h>
#include <string.h>

enum { KEY_BYTES = 32 };
#define APART __attribute__((noinline)) /* findings go by the name of the function */
static volatile unsigned char table[256];
static volatile unsigned found; /* else the compiler would remove the leak */
static unsigned char key[KEY_BYTES], other[KEY_BYTES];

APART static void branch(void)
{
    for (unsigned i = 0; i < sizeof key; i++) {
        if (key[i] & 1)
            found = found + 1;
    }
}

APART static void address(void)
{
    for (unsigned i = 0; i < sizeof key; i++)
        found = found + table[key[i]];
}

APART static void compare(void)
{
    found = memcmp(key, other, sizeof key) == 0;
}

APART static void none(void)
{
    unsigned char seen[KEY_BYTES];
    found = sodium_memcmp(key, other, sizeof key) == 0;
    crypto_generichash(seen, sizeof seen, other, sizeof other, key, sizeof key);
    sodium_memzero(seen, sizeof seen);
}

int main(void)
{
    if (sodium_init() < 0)
        return 2;
    randombytes_buf(key, sizeof key);
    branch();
    address();
    found = 0;
    compare();
    none();
    sodium_memzero(key, sizeof key);
    return 0;
}
