/* SPDX-License-Identifier: Apache-2.0 */
/* What the shared library exports; everything without this mark stays hidden (C99 and C++17). */
#ifndef OCTILE_EXPORT_H
#define OCTILE_EXPORT_H

#if defined(__GNUC__)
#define OCTILE_API __attribute__((visibility("default")))
#else
#define OCTILE_API
#endif

#endif
