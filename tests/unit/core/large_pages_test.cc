// SPDX-License-Identifier: Apache-2.0
//
// core/large_pages.h: the hint covers exactly the large pages that lie entirely within the memory.
// /proc/self/smaps shows the hints of each mapping.

#include "core/large_pages.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <fstream>
#include <memory>
#include <optional>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include <gtest/gtest.h>
#include <sys/mman.h>

namespace fovea {
namespace {

using Span = std::pair<std::ptrdiff_t, std::ptrdiff_t>;  // first byte, one past the last byte

/// Memory of `count` large pages, aligned to a large page.
class Pages {
 public:
  explicit Pages(std::size_t count) : bytes_(count * kLargePage) {
    // One more page leaves room for the alignment.
    mapped_ = ::mmap(nullptr, bytes_ + kLargePage, PROT_READ | PROT_WRITE,
                     MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (mapped_ == MAP_FAILED) throw std::bad_alloc();
    std::size_t room = bytes_ + kLargePage;
    void* begin = mapped_;
    begin_ = static_cast<std::byte*>(std::align(kLargePage, bytes_, begin, room));
  }
  ~Pages() { ::munmap(mapped_, bytes_ + kLargePage); }
  Pages(const Pages&) = delete;
  Pages& operator=(const Pages&) = delete;

  std::byte* begin() const { return begin_; }

  /// Returns the parts with the large page hint, or nothing if the system does not report hints.
  std::optional<std::vector<Span>> told() const {
    const auto first = reinterpret_cast<std::uintptr_t>(begin_);
    std::ifstream maps("/proc/self/smaps");
    std::vector<Span> spans;
    bool tells = false;
    std::uintptr_t from = 0;
    std::uintptr_t to = 0;
    for (std::string line; std::getline(maps, line);) {
      std::istringstream words(line);
      char dash = '-';
      std::uintptr_t low = 0;
      std::uintptr_t high = 0;
      if (line.starts_with("VmFlags:")) {
        tells = true;
        from = std::max(from, first);
        to = std::min(to, first + bytes_);
        if (line.find(" hg") == std::string::npos || from >= to) continue;
        const Span span(static_cast<std::ptrdiff_t>(from - first),
                        static_cast<std::ptrdiff_t>(to - first));
        if (!spans.empty() && spans.back().second == span.first) {
          spans.back().second = span.second;
        } else {
          spans.push_back(span);
        }
      } else if (words >> std::hex >> low >> dash >> high && dash == '-') {
        from = low;
        to = high;
      }
    }
    if (!tells) return std::nullopt;
    return spans;
  }

 private:
  void* mapped_;
  std::size_t bytes_;
  std::byte* begin_;
};

constexpr auto kPage = static_cast<std::ptrdiff_t>(kLargePage);

/// Returns true if the system accepts and reports the hints.
bool hints_show() {
#if defined(MADV_HUGEPAGE)
  const Pages pages(1);
  if (::madvise(pages.begin(), kLargePage, MADV_HUGEPAGE) != 0) return false;
  return pages.told() == std::vector<Span>{{0, kPage}};
#else
  return false;
#endif
}

TEST(LargePages, OnlyWholePagesGetTheHint) {
  if (!hints_show()) GTEST_SKIP() << "this system has no large pages, or does not tell of them";
  constexpr std::ptrdiff_t kRoom = 5 * kPage;
  const std::vector<std::ptrdiff_t> begins = {
      0, 1, 64, 4096, kPage - 1, kPage, kPage + 1, 2 * kPage - 64, 2 * kPage, kRoom - 1, kRoom};
  const std::vector<std::ptrdiff_t> ends = {0,         1,         kPage - 1,     kPage,
                                            kPage + 1, 2 * kPage, 3 * kPage - 1, 3 * kPage,
                                            4 * kPage, kRoom - 1, kRoom};
  for (const std::ptrdiff_t begin : begins) {
    for (const std::ptrdiff_t end : ends) {
      if (end < begin) continue;
      const Pages pages(5);
      prefer_large_pages(pages.begin() + begin, static_cast<std::size_t>(end - begin));
      std::vector<Span> expected;
      const Span whole((begin + kPage - 1) / kPage * kPage, end / kPage * kPage);
      if (whole.first < whole.second) expected.push_back(whole);
      EXPECT_EQ(pages.told(), expected) << "bytes " << begin << " to " << end;
    }
  }
}

TEST(LargePages, ContentsStayTheSame) {
  const Pages pages(2);
  std::byte* const last = pages.begin() + 2 * kPage - 1;
  *pages.begin() = std::byte{1};
  *last = std::byte{2};
  prefer_large_pages(pages.begin(), 2 * kLargePage);
  EXPECT_EQ(*pages.begin(), std::byte{1});
  EXPECT_EQ(*(last - kPage), std::byte{0});
  EXPECT_EQ(*last, std::byte{2});
}

TEST(LargePages, EmptyMemory) { prefer_large_pages(nullptr, 0); }

}  // namespace
}  // namespace fovea
