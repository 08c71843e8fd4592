// SPDX-License-Identifier: Apache-2.0
//
// FOVEA_API exports a symbol from the shared libraries, which are compiled with hidden visibility.
// It marks public functions and classes, every exception type (a hidden one could not be caught
// outside its library), and the internal functions that another library of the project calls.

#pragma once

#if defined(__GNUC__)
#define FOVEA_API __attribute__((visibility("default")))
#else
#define FOVEA_API
#endif
