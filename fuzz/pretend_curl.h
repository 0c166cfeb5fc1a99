/* pretend_curl.h - libcurl as far as `dxpu` takes answers by it: they come from the target
   SPDX-License-Identifier: MIT

   Include before the part that uses it. */
#ifndef PRETEND_CURL_H_INCLUDED
#define PRETEND_CURL_H_INCLUDED

#include "input.h"

#include <curl/curl.h>
#include <stdarg.h>
#include <string.h>

/* What is asked, and what is answered. */
static struct exchange {
    const char *url;
    char *error; /* CURL_ERROR_SIZE of it */
    curl_write_callback on_bytes;
    void *user;
    long status;
    char type[64], redirect[256];
    CURLMsg done;
    bool told; /* done */
} exchange;

/* The target's: answer it, with exchange_say(), and set status and so on.  */
static CURLcode exchange_answer(void);

/* false: it does not want more. */
static bool exchange_say(const void *bytes, size_t len)
{
    char *copy = malloc(len ? len : 1); /* no byte more than there are */
    size_t taken;
    must(copy != NULL);
    memcpy(copy, bytes, len);
    taken = exchange.on_bytes(copy, 1, len, exchange.user);
    free(copy);
    must(taken == len || taken == 0);
    return taken == len;
}

static CURLcode pretend_setopt(CURL *curl, CURLoption option, ...)
{
    va_list args;
    (void)curl;
    va_start(args, option);
    if (option == CURLOPT_URL)
        exchange.url = va_arg(args, const char *);
    else if (option == CURLOPT_ERRORBUFFER)
        exchange.error = va_arg(args, char *);
    else if (option == CURLOPT_WRITEFUNCTION)
        exchange.on_bytes = va_arg(args, curl_write_callback);
    else if (option == CURLOPT_WRITEDATA)
        exchange.user = va_arg(args, void *);
    va_end(args);
    if (option == CURLOPT_URL) { /* no name and no answer gets anything into it but itself */
        must(strncmp(exchange.url, "http://manager:4456/", 20) == 0);
        for (const char *p = exchange.url; *p; p++)
            must(*p > ' ' && *p < 0x7f && *p != '#');
    }
    return CURLE_OK;
}

static CURLcode pretend_getinfo(CURL *curl, CURLINFO info, ...)
{
    va_list args;
    (void)curl;
    va_start(args, info);
    if (info == CURLINFO_RESPONSE_CODE)
        *va_arg(args, long *) = exchange.status;
    else if (info == CURLINFO_CONTENT_TYPE)
        *va_arg(args, char **) = exchange.type[0] ? exchange.type : NULL;
    else
        *va_arg(args, char **) = exchange.redirect[0] ? exchange.redirect : NULL;
    va_end(args);
    return CURLE_OK;
}

static CURLMcode pretend_perform(CURLM *multi, int *running)
{
    (void)multi;
    exchange.status = 0;
    exchange.type[0] = exchange.redirect[0] = '\0';
    exchange.done.msg = CURLMSG_DONE;
    exchange.done.data.result = exchange_answer();
    exchange.told = false;
    *running = 0;
    return CURLM_OK;
}

static CURLMsg *pretend_done(CURLM *multi, int *left)
{
    (void)multi;
    *left = 0;
    if (exchange.told)
        return NULL;
    exchange.told = true;
    return &exchange.done;
}

#undef curl_easy_setopt
#undef curl_easy_getinfo
#define curl_easy_setopt                             pretend_setopt
#define curl_easy_getinfo                            pretend_getinfo
#define curl_easy_reset(curl)                        ((void)0)
#define curl_easy_cleanup(curl)                      ((void)0)
#define curl_multi_cleanup(multi)                    ((void)0)
#define curl_global_cleanup()                        ((void)0)
#define curl_multi_add_handle(multi, one)            (0)
#define curl_multi_remove_handle(multi, one)         ((void)0)
#define curl_multi_perform                           pretend_perform
#define curl_multi_poll(multi, fds, count, ms, some) (0)
#define curl_multi_info_read                         pretend_done

#endif /* PRETEND_CURL_H_INCLUDED */
