// SPDX-License-Identifier: Apache-2.0
//
// Tests of the shown address: versions, and what is refused.

#include "view/api/shown.h"

#include <string>
#include <string_view>

#include <gtest/gtest.h>

#include "view/http/http.h"

namespace fovea::view {
namespace {

constexpr std::string_view kToken = "0123456789abcdef";

/// Returns the status of the error for a body, 200 if there is none.
int status_of(ShownAddress& shown, std::string_view body) {
  try {
    shown.replace(body, kToken);
  } catch (const HttpError& error) {
    return error.status();
  }
  return 200;
}

TEST(ShownAddress, BeginsEmpty) {
  EXPECT_EQ(ShownAddress().json(), R"({"version":0,"address":"","program":false})");
}

TEST(ShownAddress, ThePageReplacesWhatItKnows) {
  ShownAddress shown;
  EXPECT_EQ(shown.replace(R"({"address": "/map/a/0.1#at=1,2", "after": 0})", kToken),
            R"({"version":1})");
  EXPECT_EQ(shown.json(), R"({"version":1,"address":"/map/a/0.1#at=1,2","program":false})");
  EXPECT_EQ(status_of(shown, R"({"address": "/", "after": 0})"), 409);
  EXPECT_EQ(status_of(shown, R"({"address": "/", "after": 2})"), 409);
  EXPECT_EQ(shown.json(), R"({"version":1,"address":"/map/a/0.1#at=1,2","program":false})");
}

TEST(ShownAddress, TheProgramAlwaysReplacesIt) {
  ShownAddress shown;
  shown.replace(R"({"address": "/a", "program": true})", kToken);
  EXPECT_EQ(shown.replace(R"({"address": "/b", "program": true})", kToken), R"({"version":2})");
  EXPECT_EQ(shown.json(), R"({"version":2,"address":"/b","program":true})");
}

TEST(ShownAddress, RefusesWhatIsNoAddressOfThisServer) {
  ShownAddress shown;
  const std::string rest = R"(", "program": true})";
  for (const std::string address :
       {"", "map", "http://elsewhere/", "//elsewhere/", "/ ", R"(/\n)", R"(/ä)"}) {
    EXPECT_EQ(status_of(shown, R"({"address": ")" + address + rest), 400) << address;
  }
  EXPECT_EQ(status_of(shown, R"({"address": "/)" + std::string(2048, 'a') + rest), 400);
  EXPECT_EQ(status_of(shown, R"({"address": "/)" + std::string(2047, 'a') + rest), 200);
  EXPECT_EQ(status_of(shown, R"({"address": "/#token=)" + std::string(kToken) + rest), 400);
}

TEST(ShownAddress, RefusesOtherBodies) {
  ShownAddress shown;
  for (const std::string_view body :
       {"", "{", "[]", "7", "{}", R"({"address": 7, "program": true})", R"({"address": "/"})",
        R"({"address": "/", "program": false})", R"({"address": "/", "program": 1})",
        R"({"address": "/", "after": 0.5})", R"({"address": "/", "after": "0"})"}) {
    EXPECT_EQ(status_of(shown, body), 400) << body;
  }
  EXPECT_EQ(shown.json(), R"({"version":0,"address":"","program":false})");
}

}  // namespace
}  // namespace fovea::view
