/* known.h - marks the result of comparisons as known to memcheck; put
   before each file that tests/proof/ct.py compiles */
#include <stdbool.h>
#include <valgrind/memcheck.h>

static inline bool ct_known(bool truth)
{
    (void)VALGRIND_MAKE_MEM_DEFINED(&truth, sizeof truth);
    return truth;
}
#define DXPU_PORTABLE_KNOWN(truth) ct_known(truth)
