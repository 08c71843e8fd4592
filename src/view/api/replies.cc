// SPDX-License-Identifier: Apache-2.0
//
// Replies to requests (replies.h).

#include "view/api/replies.h"

#include <new>

#include "fovea/error.h"

#include "view/explorer/explorer.h"

namespace fovea::view {

HttpResponse current_error() {
  try {
    throw;
  } catch (const HttpError& error) {
    return error_response(error);
  } catch (const InvalidArgument& error) {
    return error_response({400, "malformed", error.what(), std::string(error.argument())});
  } catch (const std::bad_alloc&) {
    return error_response({503, "memory", "out of memory"});
  } catch (const Stopped&) {
    return error_response({503, "stopped", "stopped"});
  } catch (const std::exception& error) {
    return error_response({500, "failed", error.what()});
  }
}

HttpResponse json_response(std::string text) { return {.body = std::move(text)}; }

HttpResponse binary_response(HttpBody bytes) {
  return {.type = "application/octet-stream", .body = std::move(bytes)};
}

void Waiting::Pending::answer(HttpResponse response) {
  if (!done.exchange(true)) reply(std::move(response));
}

HttpReply Waiting::add(HttpReply reply) {
  std::erase_if(pending_, [](const std::weak_ptr<Pending>& each) { return each.expired(); });
  const auto pending = std::make_shared<Pending>(std::move(reply));
  pending_.push_back(pending);
  return [pending](HttpResponse response) { pending->answer(std::move(response)); };
}

void Waiting::end(const HttpError& error) {
  for (const std::weak_ptr<Pending>& each : pending_) {
    if (const auto pending = each.lock()) pending->answer(error_response(error));
  }
}

}  // namespace fovea::view
