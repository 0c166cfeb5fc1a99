/* api_requests.h - what users may write: members of a JSON object, parameters, identifiers
   SPDX-License-Identifier: MIT

   Pure functions over untrusted text.  A refusal is a sentence that names the member. */
#ifndef API_REQUESTS_H_INCLUDED
#define API_REQUESTS_H_INCLUDED

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { API_WHY_BYTES = 160 };

enum {
    API_NUMBER, /* uint64_t  min..max */
    API_REAL,   /* double    above 0, at most max */
    API_FLAG,   /* bool */
    API_SWITCH, /* unsigned  true: 1, false: 2 */
    API_NAME,   /* char[max + 1]: 1..max of A-Z a-z 0-9 . _ - */
    API_TEXT,   /* char[max + 1]: 1..max printable ASCII characters, no spaces */
    API_CHOICE, /* unsigned  index into `words`, "any|same_box" */
    API_LEASE,  /* uint64_t  lower-case hex */
    API_SLOT    /* uint64_t  "10.3": node << 16 | slot */
};

/* One member, or one parameter.  What is not given leaves its target as it is. */
typedef struct api_member {
    const char *name;
    unsigned kind;
    void *target;
    uint64_t min, max;
    const char *words;
    bool required;
    bool nullable; /* null: *target = `min - 1` of a number, "" of a name or text */
} api_member;
typedef api_member api_param;

/* All of the text is one JSON object with these members and no others.  An empty text is {}. */
bool api_request_read(const char *text, size_t bytes, const api_member *members, unsigned count,
                      char why[API_WHY_BYTES]);
/* One parameter; false when it has no such name or value. */
bool api_param_read(const char *name, const char *value, const api_param *params, unsigned count,
                    char why[API_WHY_BYTES]);

/* Identifiers are written in one way only. */
bool api_read_number(const char *text, uint64_t max, uint64_t *out);
bool api_read_lease(const char *text, uint64_t *out);
bool api_read_slot(const char *text, uint32_t *node, uint32_t *slot);
bool api_is_name(const char *text, size_t max);

#endif /* API_REQUESTS_H_INCLUDED */
