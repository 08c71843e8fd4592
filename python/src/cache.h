// SPDX-License-Identifier: Apache-2.0
//
// KvCache in Python. Decoding runs without the GIL, so that another thread might append meanwhile
// and take away the memory that is being read: while a cache is read nobody may change it.

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

/// A cache that is being read, for as long as this lives. Holds no reference: the caller does.
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

/// The cache that an argument is, if it is one.
std::optional<CacheInUse> cache_of(PyObject* object);

}  // namespace fovea::python
