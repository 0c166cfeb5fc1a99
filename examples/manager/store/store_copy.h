/* store_copy.h - the records of a store in a file, and back into an empty store of any kind
   SPDX-License-Identifier: MIT

   The file has a line of JSON for each record, between one that says what it is and one that says
   how many there are, with the CRC-32 of all lines before it:

     {"dxpu-export":1}
     {"key":"node/10","value":"{\"role\":\"box\",...}"}
     {"records":1,"crc":"1c291ca3"} */
#ifndef STORE_COPY_H_INCLUDED
#define STORE_COPY_H_INCLUDED

#include <stddef.h>
#include <stdint.h>

#include "store.h"

/* What such a file has; *text is the caller's to free, also after an error. */
store_error store_export_text(store *s, char **text, size_t *bytes, uint64_t *records,
                              store_fault *f);
/* The file is replaced as a whole, and is on the disk; mode 600 when it is new. */
store_error store_export(store *s, const char *file, uint64_t *records, store_fault *f);
/* Into a store without records, or one with an import that was not finished, which begins again.
   STORE_E_ARG: it has others.  STORE_E_CORRUPT: the file is damaged, and nothing was changed. */
store_error store_import(store *s, const char *file, uint64_t *records, store_fault *f);
/* STORE_E_CORRUPT: an import was not finished (M-142), and a part of the records is missing. */
store_error store_check_import(store *s, store_fault *f);

#endif /* STORE_COPY_H_INCLUDED */
