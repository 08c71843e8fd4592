// SPDX-License-Identifier: Apache-2.0
//
// KvCache in Python. Decoding runs without the GIL, so a concurrent append could free memory that
// is being read. Modifying a cache that is being read therefore raises RuntimeError.

#pragma once

#include <atomic>
#include <optional>

#include <Python.h>

#include "fovea/kv_cache.h"

namespace fovea::python {

struct PythonCache {
  explicit PythonCache(KvCache made) : cache(std::move(made)) {}

  KvCache cache;
  std::atomic<int> readers = 0;
};

/// Marks a cache as being read during its lifetime. Holds no reference; the caller does.
class CacheInUse {
 public:
  explicit CacheInUse(PythonCache& cache) : cache_(&cache) { ++cache.readers; }
  CacheInUse(CacheInUse&& other) noexcept : cache_(std::exchange(other.cache_, nullptr)) {}
  CacheInUse& operator=(CacheInUse&&) = delete;
  ~CacheInUse() {
    if (cache_ != nullptr) --cache_->readers;
  }

  TensorView key() const { return cache_->cache.key(); }
  TensorView value() const { return cache_->cache.value(); }

 private:
  PythonCache* cache_;
};

/// Returns the cache if the argument is one.
std::optional<CacheInUse> cache_of(PyObject* object);

}  // namespace fovea::python
