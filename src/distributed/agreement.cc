// SPDX-License-Identifier: Apache-2.0
//
// Comparison of arguments and collection of errors (agreement.h), by all_gather of small records of
// a fixed size, so that ranks that call different operations can still compare them.

#include "distributed/agreement.h"

#include <algorithm>
#include <array>
#include <cstdint>
#include <cstring>
#include <map>
#include <new>
#include <string_view>

#include <fmt/format.h>

#include "core/fail.h"

namespace fovea::distributed {
namespace {

constexpr std::size_t kMaxArguments = 24;
constexpr std::size_t kMaxText = 400;

enum class Outcome : std::uint8_t { kDone, kInvalid, kStopped, kFailed };

/// The message of a rank to the others: its outcome, with the text of its error, or of an argument.
struct Report {
  Outcome outcome = Outcome::kDone;
  std::uint16_t argument_size = 0;  // of InvalidArgument::argument()
  std::array<char, kMaxText> text{};

  void set_text(std::string_view from) {
    const std::size_t size = std::min(from.size(), kMaxText - 1);
    std::copy_n(from.data(), size, text.data());
  }
  std::string_view words() const { return {text.data(), ::strnlen(text.data(), kMaxText)}; }
};

struct Fingerprints {
  std::uint8_t failed = 0;
  std::array<std::uint64_t, kMaxArguments> of{};
};

std::uint64_t hash(const void* bytes, std::size_t count) {  // FNV-1a
  std::uint64_t result = 0xcbf29ce484222325;
  const auto* const from = static_cast<const unsigned char*>(bytes);
  for (std::size_t i = 0; i < count; ++i) result = (result ^ from[i]) * 0x100000001b3;
  return result;
}

template <class T>
std::vector<T> gather_all(Transport& transport, const T& own) {
  std::vector<T> all(static_cast<std::size_t>(transport.size()));
  transport.all_gather(std::as_bytes(std::span(&own, 1)), std::as_writable_bytes(std::span(all)));
  return all;
}

Report report_of(const std::exception_ptr& error) {
  Report report;
  if (!error) return report;
  try {
    std::rethrow_exception(error);
  } catch (const InvalidArgument& e) {
    report.outcome = Outcome::kInvalid;
    report.argument_size = static_cast<std::uint16_t>(std::min(e.argument().size(), kMaxText - 1));
    report.set_text(e.what());
  } catch (const Stopped& e) {
    report.outcome = Outcome::kStopped;
    report.set_text(e.what());
  } catch (const std::bad_alloc&) {
    report.outcome = Outcome::kFailed;
    report.set_text("out of memory");
  } catch (const std::exception& e) {
    report.outcome = Outcome::kFailed;
    report.set_text(e.what());
  } catch (...) {
    report.outcome = Outcome::kFailed;
    report.set_text("unknown error");
  }
  return report;
}

/// Returns "rank 3", "ranks 0-2" or "ranks 0, 2-3".
std::string name_ranks(const std::vector<int>& ranks) {
  std::string list;
  for (std::size_t i = 0; i < ranks.size();) {
    std::size_t last = i;
    while (last + 1 < ranks.size() && ranks[last + 1] == ranks[last] + 1) ++last;
    if (!list.empty()) list += ", ";
    list += last > i ? fmt::format("{}-{}", ranks[i], ranks[last]) : fmt::format("{}", ranks[i]);
    i = last + 1;
  }
  return (ranks.size() == 1 ? "rank " : "ranks ") + list;
}

/// Throws the errors among the reports of all ranks. `mine` is rethrown if all ranks report the
/// same error, or if it is a failure: other ranks throw RankError then.
void throw_errors(const std::vector<Report>& reports, const std::exception_ptr& mine) {
  // Invalid arguments first, then failures: if one rank fails, stopping others is a consequence.
  for (const Outcome outcome : {Outcome::kInvalid, Outcome::kFailed, Outcome::kStopped}) {
    std::map<std::string_view, std::vector<int>> ranks;  // by text
    const Report* first = nullptr;
    for (std::size_t rank = 0; rank < reports.size(); ++rank) {
      if (reports[rank].outcome != outcome) continue;
      if (first == nullptr) first = &reports[rank];
      ranks[reports[rank].words()].push_back(static_cast<int>(rank));
    }
    if (first == nullptr) continue;
    const bool all = ranks.begin()->second.size() == reports.size();
    const bool failed_here = outcome == Outcome::kFailed && report_of(mine).outcome == outcome;
    if (mine && (all || failed_here)) std::rethrow_exception(mine);
    std::string text(first->words());
    const std::string who = name_ranks(ranks[first->words()]);
    const std::string more = ranks.size() > 1 ? " (other ranks report other errors)" : "";
    if (outcome == Outcome::kInvalid) {
      const std::string argument = text.substr(0, first->argument_size);
      if (argument.empty()) fail("on {}: {}{}", who, text, more);
      const std::string rest = text.substr(std::min(text.size(), argument.size() + 2));
      fail_argument(argument, "{}, on {}{}", rest, who, more);
    }
    if (outcome == Outcome::kStopped) throw Stopped(fmt::format("{}, on {}{}", text, who, more));
    throw RankError(fmt::format("{}: {}{}", who, text, more));
  }
}

}  // namespace

std::string digest(const void* bytes, std::size_t count) {
  return fmt::format("{:016x}", hash(bytes, count));
}

void share_errors(Transport& transport, const std::exception_ptr& mine) {
  throw_errors(gather_all(transport, report_of(mine)), mine);
}

void agree(Transport& transport, const std::vector<SharedArgument>& arguments,
           const std::exception_ptr& mine) {
  Fingerprints own;
  own.failed = mine ? 1 : 0;
  for (std::size_t i = 0; i < std::min(arguments.size(), kMaxArguments); ++i) {
    own.of[i] = hash(arguments[i].text.data(), arguments[i].text.size());
  }
  const std::vector<Fingerprints> all = gather_all(transport, own);
  if (std::ranges::any_of(all, [](const Fingerprints& one) { return one.failed != 0; })) {
    return share_errors(transport, mine);
  }
  std::size_t different = kMaxArguments;
  for (const Fingerprints& one : all) {
    const auto [at, unused] = std::ranges::mismatch(one.of, all[0].of);
    different = std::min(different, static_cast<std::size_t>(at - one.of.begin()));
  }
  if (different == kMaxArguments) return;
  // Ranks that call another operation may have fewer arguments, but all have its name.
  Report report;
  report.set_text(arguments[different].text);
  const std::vector<Report> texts = gather_all(transport, report);
  std::map<std::string_view, std::vector<int>> ranks;
  std::vector<std::string_view> order;
  for (std::size_t rank = 0; rank < texts.size(); ++rank) {
    auto& same = ranks[texts[rank].words()];
    if (same.empty()) order.push_back(texts[rank].words());
    same.push_back(static_cast<int>(rank));
  }
  std::string got;
  for (const std::string_view text : order) {
    got += fmt::format("{}{} on {}", got.empty() ? "" : ", ", text, name_ranks(ranks[text]));
  }
  fail_argument(arguments[different].name, "expected the same on all ranks, got {}", got);
}

}  // namespace fovea::distributed
