// SPDX-License-Identifier: Apache-2.0
//
// Inputs for the explorer of `fovea view`, and waiting for its replies.

#pragma once

#include <chrono>
#include <cstdint>
#include <exception>
#include <future>
#include <memory>
#include <stdexcept>
#include <stop_token>
#include <thread>
#include <utility>
#include <variant>
#include <vector>

#include <gtest/gtest.h>

#include "fovea/recording.h"
#include "fovea/tensor.h"

#include "view/explorer/explorer.h"
#include "view/explorer/frame.h"

namespace fovea::test {

/// Returns an input with one layer, one batch item of the tensors.
inline view::Input input_of(const TensorRef& query, const TensorRef& key,
                            const AttentionOptions& options, const TensorRef& lse = {},
                            std::int64_t batch = 0) {
  view::Layer layer;
  layer.label = "0";
  layer.batch = batch;
  layer.attention.name = "layers.0";
  layer.attention.options = options;
  layer.attention.query = query;
  layer.attention.key = key;
  layer.attention.lse = lse;
  view::Input input;
  input.id = input.name = "test";
  input.layers.push_back(std::move(layer));
  return input;
}

inline std::vector<view::Input> inputs_of(view::Input input) {
  std::vector<view::Input> inputs;
  inputs.push_back(std::move(input));
  return inputs;
}

/// A request that has been sent.
template <class Result>
class Waiting {
 public:
  /// Calls ask(stop, reply).
  template <class Ask>
  explicit Waiting(const Ask& ask) : answer_(promise_->get_future()) {
    ask(stop_.get_token(), [promise = promise_](view::Answer<Result> answer) {
      promise->set_value(std::move(answer));
    });
  }

  /// Waits for the reply, and rethrows its exception.
  Result get() {
    if (answer_.wait_for(std::chrono::minutes(2)) != std::future_status::ready) {
      throw std::runtime_error("no reply");
    }
    view::Answer<Result> answer = answer_.get();
    if (const auto* const error = std::get_if<std::exception_ptr>(&answer)) {
      std::rethrow_exception(*error);
    }
    return std::move(std::get<Result>(answer));
  }
  bool ready() const {
    return answer_.wait_for(std::chrono::seconds(0)) == std::future_status::ready;
  }
  void stop() { stop_.request_stop(); }

 private:
  std::stop_source stop_;
  std::shared_ptr<std::promise<view::Answer<Result>>> promise_ =
      std::make_shared<std::promise<view::Answer<Result>>>();
  std::future<view::Answer<Result>> answer_;
};

inline Waiting<view::FrameBytes> ask_tile(view::Explorer& explorer, const view::HeadPlace& head,
                                          const view::TilePlace& tile) {
  return Waiting<view::FrameBytes>([&](std::stop_token stop, view::Reply<view::FrameBytes> reply) {
    explorer.tile(head, tile, std::move(stop), std::move(reply));
  });
}

/// Waits until `condition` returns true, for up to a minute.
template <class Condition>
bool wait_until(const Condition& condition) {
  const auto end = std::chrono::steady_clock::now() + std::chrono::minutes(1);
  while (!condition()) {
    if (std::chrono::steady_clock::now() > end) return false;
    std::this_thread::sleep_for(std::chrono::milliseconds(2));
  }
  return true;
}

/// Asks for a tile until it is final.
inline view::FrameBytes final_tile(view::Explorer& explorer, const view::HeadPlace& head,
                                   const view::TilePlace& tile) {
  view::FrameBytes frame;
  const auto ask = [&] {
    frame = ask_tile(explorer, head, tile).get();
    return view::frame_is_final(*frame);
  };
  if (!wait_until(ask)) throw std::runtime_error("the tile is not final");
  return frame;
}

inline view::Frame get_tile(view::Explorer& explorer, const view::HeadPlace& head,
                            const view::TilePlace& tile) {
  return view::decode_frame(*final_tile(explorer, head, tile));
}

}  // namespace fovea::test
