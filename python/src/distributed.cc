// SPDX-License-Identifier: Apache-2.0
//
// Shardings, and transports that are Python objects, for fovea.distributed.

#include "distributed.h"

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <functional>
#include <memory>
#include <mutex>
#include <numeric>
#include <span>
#include <stdexcept>
#include <string>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

#include <nanobind/nanobind.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/shared_ptr.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include "fovea/error.h"

#include "arrays/calls.h"
#include "distributed/agreement.h"
#include "functions.h"

namespace nb = nanobind;

namespace fovea::python {
namespace {

using distributed::PositionRange;
using distributed::Sharding;
using distributed::Transport;

/// A writable memoryview; torch has no tensors on read-only memory.
nb::object memory_of(std::span<const std::byte> bytes) {
  return nb::steal(
      PyMemoryView_FromMemory(const_cast<char*>(reinterpret_cast<const char*>(bytes.data())),
                              static_cast<Py_ssize_t>(bytes.size()), PyBUF_WRITE));
}

/// Transport by two methods of a Python object that return when their messages have arrived:
/// exchange(to, send, source, receive) and all_gather(own, all).
///
/// They run in a thread of their own. So the engine computes during an exchange without acquiring
/// the GIL, and SIGINT, which Python handles in the main thread, does not end a method halfway.
class PythonTransport final : public Transport {
 public:
  explicit PythonTransport(nb::object methods)
      : methods_(std::move(methods)),
        rank_(nb::cast<int>(methods_.attr("rank"))),
        size_(nb::cast<int>(methods_.attr("size"))),
        thread_([this] { work(); }) {}

  /// Called with the GIL. No call is under way, so the thread ends without it.
  ~PythonTransport() override {
    {
      const std::lock_guard lock(mutex_);
      ending_ = true;
    }
    changed_.notify_all();
    thread_.join();
  }

  int rank() const override { return rank_; }
  int size() const override { return size_; }

  void begin_exchange(const distributed::Exchange& exchange) override {
    start([this, exchange] {
      methods_.attr("exchange")(exchange.to, memory_of(exchange.send), exchange.from,
                                memory_of(exchange.receive));
    });
  }

  bool wait(std::chrono::nanoseconds at_most) override {
    std::unique_lock lock(mutex_);
    if (!changed_.wait_for(lock, at_most, [this] { return !call_; })) return false;
    if (!error_.empty()) throw distributed::CommunicationError(std::exchange(error_, {}));
    return true;
  }

  void all_gather(std::span<const std::byte> own, std::span<std::byte> all) override {
    start([this, own, all] { methods_.attr("all_gather")(memory_of(own), memory_of(all)); });
    while (!wait(std::chrono::hours(1))) {
    }
  }

 private:
  void start(std::function<void()> call) {
    {
      const std::lock_guard lock(mutex_);
      call_ = std::move(call);
    }
    changed_.notify_all();
  }

  /// Makes the calls, one after another.
  void work() {
    std::unique_lock lock(mutex_);
    while (true) {
      changed_.wait(lock, [this] { return call_ || ending_; });
      if (!call_) return;
      lock.unlock();
      std::string error = error_of(call_);
      lock.lock();
      error_ = std::move(error);
      call_ = nullptr;
      changed_.notify_all();
    }
  }

  /// Returns the text of the call's error, or nothing.
  static std::string error_of(const std::function<void()>& call) {
    const nb::gil_scoped_acquire held;
    try {
      call();
    } catch (const nb::python_error& error) {
      return "communication with the other ranks failed: " +
             std::string(nb::str(error.value()).c_str());
    }
    return {};
  }

  nb::object methods_;
  const int rank_, size_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::function<void()> call_;  // under way
  std::string error_;           // of the last call
  bool ending_ = false;
  std::thread thread_;  // last, because it uses the other members
};

std::vector<std::pair<std::int64_t, std::int64_t>> ranges_of(const Sharding& sharding, int rank) {
  if (rank < 0 || rank >= sharding.ranks()) {
    throw InvalidArgument("rank", "expected 0 or more and less than " +
                                      std::to_string(sharding.ranks()) + ", got " +
                                      std::to_string(rank));
  }
  std::vector<std::pair<std::int64_t, std::int64_t>> ranges;
  for (const PositionRange& range : sharding.ranges(rank))
    ranges.emplace_back(range.begin, range.end);
  return ranges;
}

/// Returns the error as InvalidArgument if it is one of arguments.
std::exception_ptr exception_of(nb::handle error) {
  const std::string text = nb::str(error).c_str();
  if (PyErr_GivenExceptionMatches(error.ptr(), PyExc_ValueError) != 0 ||
      PyErr_GivenExceptionMatches(error.ptr(), PyExc_TypeError) != 0) {
    const std::size_t colon = text.find(": ");
    const bool named = colon != std::string::npos && text.find(' ') > colon;
    if (!named) return std::make_exception_ptr(InvalidArgument(text));
    return std::make_exception_ptr(InvalidArgument(text.substr(0, colon), text.substr(colon + 2)));
  }
  const std::string type = nb::str(nb::handle(error.type()).attr("__name__")).c_str();
  return std::make_exception_ptr(std::runtime_error(type + (text.empty() ? "" : ": " + text)));
}

/// The message with which each operation begins.
struct Beginning {
  std::int64_t failed = 0;
  std::int64_t queries = 0;
  std::int64_t keys = 0;
};

std::vector<Beginning> exchange_beginnings(Transport& transport, const Beginning& own) {
  std::vector<Beginning> all(static_cast<std::size_t>(transport.size()));
  transport.all_gather(std::as_bytes(std::span(&own, 1)), std::as_writable_bytes(std::span(all)));
  return all;
}

/// Rethrows an error about a C++ argument with the name of Python's argument.
[[noreturn]] void rethrow_in_python_terms(const InvalidArgument& error) {
  for (const auto& [name, python_name] : {std::pair("queries", "sharding"),
                                          {"keys", "key_sharding"},
                                          {"sequences", "query_starts"}}) {
    if (error.argument() != name) continue;
    const std::size_t colon = error.argument().size() + 2;
    throw InvalidArgument(python_name, std::string_view(error.what()).substr(colon));
  }
  throw error;
}

}  // namespace

Ranks::Ranks(std::shared_ptr<Transport> transport) : transport_(std::move(transport)) {}

Ranks::Division Ranks::division_of(const char* name, nb::handle wish) {
  if (nb::isinstance<Sharding>(wish)) {
    return {Division::Kind::kGiven, nb::cast<const Sharding&>(wish)};
  }
  const std::string text = nb::isinstance<nb::str>(wish) ? nb::cast<std::string>(wish) : "";
  if (text == "contiguous") return {Division::Kind::kContiguous, {}};
  if (text == "zigzag") return {Division::Kind::kZigzag, {}};
  raise_value_error("{}: expected \"contiguous\", \"zigzag\" or a Sharding, got {}", name,
                    nb::repr(wish).c_str());
}

void Ranks::set_shardings(nb::handle queries, nb::handle keys) {
  queries_ = division_of("sharding", queries);
  keys_ = division_of("key_sharding", keys);
}

void Ranks::begin(std::int64_t queries, std::int64_t keys) {
  has_begun_ = true;
  const std::vector<Beginning> all =
      exchange_beginnings(*transport_, {.queries = queries, .keys = keys});
  if (std::ranges::any_of(all, [](const Beginning& one) { return one.failed != 0; })) {
    distributed::share_errors(*transport_, nullptr);
  }
  const auto divide = [&](Division& division, std::int64_t Beginning::*length) {
    if (division.kind == Division::Kind::kGiven) return;
    std::vector<std::int64_t> lengths;
    for (const Beginning& one : all) lengths.push_back(one.*length);
    division.sharding =
        division.kind == Division::Kind::kContiguous
            ? Sharding::lengths(lengths)
            : Sharding::zigzag(std::accumulate(lengths.begin(), lengths.end(), std::int64_t{0}),
                               transport_->size());
  };
  divide(queries_, &Beginning::queries);
  divide(keys_, &Beginning::keys);
}

void Ranks::fail(nb::handle error) {
  if (has_begun_) return;
  has_begun_ = true;
  const std::exception_ptr own = exception_of(error);
  const std::string text = nb::str(error).c_str();
  const nb::gil_scoped_release released;
  exchange_beginnings(*transport_, {.failed = 1});
  try {
    distributed::share_errors(*transport_, own);
  } catch (const std::exception& shared) {
    if (shared.what() != text) throw;
  }
}

void run_on_ranks(Ranks& ranks, std::int64_t queries, std::int64_t keys, Execution& execution,
                  const std::function<void()>& engine) {
  try {
    run_once(execution, [&] {
      ranks.begin(queries, keys);
      engine();
    });
  } catch (const InvalidArgument& error) {
    rethrow_in_python_terms(error);
  }
}

void add_distributed(nb::module_& module) {
  using namespace nb::literals;
  nb::class_<Sharding>(
      module, "Sharding",
      "The division of the positions of a sequence among ranks. The part of a rank "
      "is the concatenation of\nits ranges, in ascending order.")
      .def_static("contiguous", &Sharding::contiguous, "length"_a, "ranks"_a,
                  "Rank r owns the positions from floor(r length / ranks) to before floor((r + 1) "
                  "length / ranks).")
      .def_static(
          "zigzag", &Sharding::zigzag, "length"_a, "ranks"_a,
          "Cuts the positions into 2 ranks chunks; rank r owns chunks r and 2 ranks - 1 - r. "
          "Under a causal mask, all\nranks then have about the same work.")
      .def_static("lengths", &Sharding::lengths, "lengths"_a,
                  "Rank r owns the lengths[r] positions after those of the ranks before it.")
      .def_prop_ro("length", nb::overload_cast<>(&Sharding::length, nb::const_),
                   "The number of positions of all ranks.")
      .def_prop_ro("ranks", &Sharding::ranks, "The number of ranks.")
      .def("ranges", ranges_of, "rank"_a, "The ranges (begin, end) of a rank, ascending.")
      .def("owner", &Sharding::owner, "position"_a, "The rank that owns a position.")
      .def(
          "__eq__",
          [](const Sharding& self, nb::handle other) {
            return nb::isinstance<Sharding>(other) && self == nb::cast<const Sharding&>(other);
          },
          "other"_a.none(), nb::sig("def __eq__(self, other: object, /) -> bool"))
      .def("__repr__",
           [](const Sharding& self) { return "fovea.distributed.Sharding." + self.to_string(); });
  nb::class_<Transport>(module, "_Transport");
  module.def(
      "_python_transport",
      [](nb::object methods) -> std::shared_ptr<Transport> {
        return std::make_shared<PythonTransport>(std::move(methods));
      },
      "methods"_a);
  nb::class_<Ranks>(module, "_Ranks", nb::dynamic_attr())
      .def(nb::init<std::shared_ptr<Transport>>(), "transport"_a)
      .def_prop_ro("size", [](const Ranks& self) { return self.transport().size(); })
      .def("set_shardings", &Ranks::set_shardings, "queries"_a, "keys"_a)
      .def("__enter__", &Ranks::prepare)
      .def(
          "__exit__",
          [](Ranks& self, nb::handle, nb::handle error, nb::handle) {
            if (!error.is_none()) self.fail(error);
          },
          "type"_a.none(), "error"_a.none(), "traceback"_a.none());
}

}  // namespace fovea::python
