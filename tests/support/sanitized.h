/* sanitized.h - is this compiled with AddressSanitizer?
   SPDX-License-Identifier: MIT */
#ifndef DXPU_TESTS_SANITIZED_H
#define DXPU_TESTS_SANITIZED_H

#ifdef __SANITIZE_ADDRESS__
#define SANITIZED 1
#elif defined(__has_feature)
#define SANITIZED __has_feature(address_sanitizer)
#else
#define SANITIZED 0
#endif

#endif
