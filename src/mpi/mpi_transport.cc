// SPDX-License-Identifier: Apache-2.0
//
// The transport on an MPI communicator (make_transport). Waits poll, so that a rank that has died
// or hangs is noticed and named.
//
// A rank that has waited for the timeout sends an alarm to all others. Each rank that is in a wait,
// or computes and polls, answers with an alarm to all others, so that every rank hears from every
// live rank. After a grace period the ranks that are still silent are named. If all have answered,
// the waiting goes on: some rank merely computes for long. But if no rank has done anything between
// two rounds of alarms, all wait for each other, which is an error too.

#include <algorithm>
#include <thread>
#include <vector>

#include <fmt/format.h>
#include <sched.h>

#include "fovea/mpi.h"

#include "core/fail.h"

namespace fovea::mpi {
namespace {

using Clock = std::chrono::steady_clock;

constexpr int kExchangeTag = 1;
constexpr int kGatherTag = 2;
constexpr int kAlarmTag = 3;
constexpr std::size_t kMaxMessage = std::size_t{1} << 30;  // MPI counts bytes in int
constexpr std::chrono::seconds kMaxGrace{10};
constexpr std::chrono::milliseconds kSpinning{2};
constexpr std::chrono::microseconds kPause{50};

class MpiTransport final : public Transport {
 public:
  MpiTransport(MPI_Comm communicator, const TransportOptions& options)
      : creator_(std::this_thread::get_id()) {
    set_timeout(options.timeout);
    MPI_Comm_dup(communicator, &communicator_);
    MPI_Comm_rank(communicator_, &rank_);
    MPI_Comm_size(communicator_, &size_);
    int level = MPI_THREAD_SINGLE;
    MPI_Query_thread(&level);
    any_thread_ = level >= MPI_THREAD_SERIALIZED;
    heard_.resize(static_cast<std::size_t>(size_));
  }

  ~MpiTransport() override {
    int finalized = 0;
    MPI_Finalized(&finalized);
    if (finalized != 0) return;
    abandon();
    MPI_Comm_free(&communicator_);
  }

  void set_timeout(std::chrono::milliseconds timeout) {
    timeout_ = timeout;
    grace_ = std::min<Clock::duration>(timeout, kMaxGrace);
  }

  int rank() const override { return rank_; }
  int size() const override { return size_; }

  void begin_exchange(const Exchange& exchange) override {
    begin();
    if (exchange.from >= 0) receive(exchange.from, kExchangeTag, exchange.receive);
    if (exchange.to >= 0) send(exchange.to, kExchangeTag, exchange.send);
  }

  bool wait(std::chrono::nanoseconds at_most) override {
    if (requests_.empty()) return true;
    if (!any_thread_ && std::this_thread::get_id() != creator_) return false;
    const Clock::time_point start = Clock::now();
    if (at_most.count() == 0) {
      ++events_;  // this rank computes
      return poll();
    }
    for (Clock::time_point now = start;;) {
      if (poll()) return true;
      const Clock::time_point before = now;
      now = Clock::now();
      waited_ += now - before;
      if (waited_ > timeout_) raise_alarm(now);
      if (now - start >= at_most) return false;
      // Yield to ranks on the same CPU. Sleep later, because a long wait is not for a message.
      if (now - start < kSpinning) {
        sched_yield();
      } else {
        std::this_thread::sleep_for(kPause);
      }
    }
  }

  void all_gather(std::span<const std::byte> own, std::span<std::byte> all) override {
    begin();
    for (int other = 0; other < size_; ++other) {
      const auto part = all.subspan(static_cast<std::size_t>(other) * own.size(), own.size());
      if (other == rank_) {
        std::ranges::copy(own, part.begin());
      } else {
        receive(other, kGatherTag, part);
        send(other, kGatherTag, own);
      }
    }
    while (!wait(std::chrono::hours(1))) {
    }
  }

 private:
  /// The last alarms of a rank.
  struct Heard {
    std::int64_t round = 0;
    std::int64_t events = -1;         // at the last alarm
    std::int64_t events_before = -1;  // at the one before
  };

  void begin() {
    ++events_;
    waited_ = {};
  }

  void receive(int from, int tag, std::span<std::byte> bytes) {
    for (std::size_t done = 0; done < bytes.size(); done += kMaxMessage) {
      const auto piece = bytes.subspan(done, std::min(kMaxMessage, bytes.size() - done));
      MPI_Irecv(piece.data(), static_cast<int>(piece.size()), MPI_BYTE, from, tag, communicator_,
                &requests_.emplace_back());
    }
  }

  void send(int to, int tag, std::span<const std::byte> bytes) {
    for (std::size_t done = 0; done < bytes.size(); done += kMaxMessage) {
      const auto piece = bytes.subspan(done, std::min(kMaxMessage, bytes.size() - done));
      MPI_Isend(piece.data(), static_cast<int>(piece.size()), MPI_BYTE, to, tag, communicator_,
                &requests_.emplace_back());
    }
  }

  /// Advances all messages; returns whether those of the exchange have arrived.
  bool poll() {
    answer_alarms();
    int done = 0;
    MPI_Testall(static_cast<int>(requests_.size()), requests_.data(), &done, MPI_STATUSES_IGNORE);
    if (done == 0) return false;
    requests_.clear();
    ++events_;
    return true;
  }

  void answer_alarms() {
    for (;;) {
      int any = 0;
      MPI_Status status;
      MPI_Iprobe(MPI_ANY_SOURCE, kAlarmTag, communicator_, &any, &status);
      if (any == 0) return;
      Heard& heard = heard_[static_cast<std::size_t>(status.MPI_SOURCE)];
      heard.events_before = heard.events;
      MPI_Recv(&heard.events, 1, MPI_INT64_T, status.MPI_SOURCE, kAlarmTag, communicator_,
               MPI_STATUS_IGNORE);
      if (++heard.round > round_) open_round();
    }
  }

  void open_round() {
    ++round_;
    round_opened_ = Clock::now();
    Heard& own = heard_[static_cast<std::size_t>(rank_)];
    own = {round_, events_, own.events};
    alarm_ = events_;
    for (int other = 0; other < size_; ++other) {
      if (other == rank_) continue;
      // So small that MPI copies it at once.
      MPI_Request request = MPI_REQUEST_NULL;
      MPI_Isend(&alarm_, 1, MPI_INT64_T, other, kAlarmTag, communicator_, &request);
      MPI_Request_free(&request);
    }
  }

  void raise_alarm(Clock::time_point now) {
    std::vector<int> silent;
    bool anything_done = false;
    for (int other = 0; other < size_; ++other) {
      const Heard& heard = heard_[static_cast<std::size_t>(other)];
      if (heard.round < round_) silent.push_back(other);
      anything_done = anything_done || heard.events != heard.events_before;
    }
    const double seconds = std::chrono::duration<double>(timeout_).count();
    if (silent.empty()) {
      if (round_ == answered_) return open_round();
      answered_ = round_;
      waited_ = {};
      if (anything_done) return;
      abandon();
      throw CommunicationError(
          fmt::format("rank {}: expected progress within {} s, but all ranks "
                      "wait for each other",
                      rank_, seconds));
    }
    if (now - round_opened_ < grace_) return;
    abandon();
    throw CommunicationError(fmt::format("rank {}: expected a sign of life within {} s, got none",
                                         fmt::join(silent, ", "), seconds));
  }

  /// Lets go of the memory of pending messages, as far as MPI does.
  void abandon() {
    for (MPI_Request& request : requests_) {
      if (request == MPI_REQUEST_NULL) continue;
      MPI_Cancel(&request);
      MPI_Request_free(&request);
    }
    requests_.clear();
  }

  Clock::duration timeout_{}, grace_{};
  const std::thread::id creator_;
  MPI_Comm communicator_ = MPI_COMM_NULL;
  int rank_ = 0;
  int size_ = 1;
  bool any_thread_ = false;
  std::vector<MPI_Request> requests_;  // of the exchange
  Clock::duration waited_{};           // in this exchange, since the last complete round
  std::int64_t events_ = 0;            // what this rank has done
  std::int64_t alarm_ = 0;             // the message of the last round
  std::int64_t round_ = 0;             // the last round that this rank has opened
  std::int64_t answered_ = 0;          // the last round that all ranks have answered
  Clock::time_point round_opened_;
  std::vector<Heard> heard_;  // by rank
};

void check_timeout(std::chrono::milliseconds timeout) {
  if (timeout.count() <= 0) {
    fail_argument("timeout", "expected more than 0 ms, got {}", timeout.count());
  }
}

}  // namespace

std::unique_ptr<Transport> make_transport(MPI_Comm communicator, const TransportOptions& options) {
  int initialized = 0, finalized = 0;
  MPI_Initialized(&initialized);
  MPI_Finalized(&finalized);
  if (initialized == 0 || finalized != 0) {
    fail_argument("communicator", "expected MPI to be initialized, and not finalized");
  }
  check_timeout(options.timeout);
  return std::make_unique<MpiTransport>(communicator, options);
}

void set_timeout(Transport& transport, std::chrono::milliseconds timeout) {
  check_timeout(timeout);
  auto* const own = dynamic_cast<MpiTransport*>(&transport);
  if (own == nullptr) fail_argument("transport", "expected one of make_transport(), got another");
  own->set_timeout(timeout);
}

}  // namespace fovea::mpi
