// SPDX-License-Identifier: Apache-2.0
//
// What the shared libraries export. Everything is compiled with hidden symbols; FOVEA_API marks the
// public functions and classes, every exception (a hidden one could not be caught across the border
// of a library), and the few internal functions that one library of the family calls in another.

#pragma once

#if defined(__GNUC__)
#define FOVEA_API __attribute__((visibility("default")))
#else
#define FOVEA_API
#endif
