/* late_curl.c - libcurl, see late.h
   SPDX-License-Identifier: MIT */
#include "late.h"

#include <curl/curl.h>
#include <stdarg.h>

/* All of libcurl that the programs call. */
#define FUNCTIONS(F, P, V)                                                                         \
    F(CURLcode, curl_global_init, (long flags), (flags))                                           \
    P(void, curl_global_cleanup, (void), ())                                                       \
    F(CURL *, curl_easy_init, (void), ())                                                          \
    P(void, curl_easy_reset, (CURL * c), (c))                                                      \
    P(void, curl_easy_cleanup, (CURL * c), (c))                                                    \
    F(const char *, curl_easy_strerror, (CURLcode error), (error))                                 \
    F(CURLM *, curl_multi_init, (void), ())                                                        \
    F(CURLMcode, curl_multi_add_handle, (CURLM * m, CURL * c), (m, c))                             \
    F(CURLMcode, curl_multi_remove_handle, (CURLM * m, CURL * c), (m, c))                          \
    F(CURLMcode, curl_multi_perform, (CURLM * m, int *running), (m, running))                      \
    F(CURLMcode, curl_multi_poll,                                                                  \
      (CURLM * m, struct curl_waitfd fds[], unsigned count, int ms, int *some),                    \
      (m, fds, count, ms, some))                                                                   \
    F(CURLMsg *, curl_multi_info_read, (CURLM * m, int *left), (m, left))                          \
    F(CURLMcode, curl_multi_cleanup, (CURLM * m), (m))                                             \
    F(struct curl_slist *, curl_slist_append, (struct curl_slist * list, const char *text),        \
      (list, text))                                                                                \
    P(void, curl_slist_free_all, (struct curl_slist * list), (list))                               \
    F(CURLU *, curl_url, (void), ())                                                               \
    P(void, curl_url_cleanup, (CURLU * url), (url))                                                \
    F(CURLUcode, curl_url_set, (CURLU * url, CURLUPart what, const char *text, unsigned flags),    \
      (url, what, text, flags))                                                                    \
    F(CURLUcode, curl_url_get, (CURLU * url, CURLUPart what, char **text, unsigned flags),         \
      (url, what, text, flags))                                                                    \
    P(void, curl_free, (void *text), (text))                                                       \
    V(CURLcode, curl_easy_setopt, (CURL * c, CURLoption option, ...), )                            \
    V(CURLcode, curl_easy_getinfo, (CURL * c, CURLINFO what, ...), )

static const char *const names[] = { "libcurl.so.4", "libcurl-gnutls.so.4", NULL };
LATE_LIBRARY(FUNCTIONS, names, "libcurl4")

CURLcode late_curl_easy_setopt(CURL *c, CURLoption option, ...)
{
    va_list last; /* of the type that the option's number says */
    CURLcode rc;
    (void)pthread_once(&loaded, load);
    va_start(last, option);
    if (option < CURLOPTTYPE_OBJECTPOINT)
        rc = (real.curl_easy_setopt)(c, option, va_arg(last, long));
    else if (option >= CURLOPTTYPE_OFF_T && option < CURLOPTTYPE_BLOB)
        rc = (real.curl_easy_setopt)(c, option, va_arg(last, curl_off_t));
    else
        rc = (real.curl_easy_setopt)(c, option, va_arg(last, void *));
    va_end(last);
    return rc;
}

CURLcode late_curl_easy_getinfo(CURL *c, CURLINFO what, ...)
{
    va_list last;
    CURLcode rc;
    (void)pthread_once(&loaded, load);
    va_start(last, what);
    rc = (real.curl_easy_getinfo)(c, what, va_arg(last, void *));
    va_end(last);
    return rc;
}
