// SPDX-License-Identifier: Apache-2.0
//
// Stop requests for passes of layers (fovea/nn/stop.h).

#include "nn/stop.h"

#include <utility>

#include "fovea/error.h"
#include "fovea/nn/stop.h"

namespace fovea::nn {
namespace {

thread_local std::stop_token stop_of_thread;

}  // namespace

StopScope::StopScope(std::stop_token stop)
    : before_(std::exchange(stop_of_thread, std::move(stop))) {}

StopScope::~StopScope() { stop_of_thread = std::move(before_); }

const std::stop_token& current_stop() { return stop_of_thread; }

void throw_if_stopped() {
  if (stop_of_thread.stop_requested()) throw Stopped("stopped as requested");
}

}  // namespace fovea::nn
