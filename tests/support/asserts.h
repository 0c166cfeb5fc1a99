/* DXPU_CONFIG_HEADER of the sanitizer build: asserts on, unless a test brings its own. */
#ifndef DXPU_TESTS_ASSERTS_H
#define DXPU_TESTS_ASSERTS_H
#ifndef DXPU_ASSERT
#include <assert.h>
#define DXPU_ASSERT(x) assert(x)
#endif
#endif
