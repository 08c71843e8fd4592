// SPDX-License-Identifier: Apache-2.0
//
// The manual pages, embedded by the build from the text files in this folder. cli/shell/page.h
// describes their format.

#pragma once

#include <string_view>

namespace fovea::cli {

extern const std::string_view kAttendPage;
extern const std::string_view kCompletionPage;
extern const std::string_view kDiffPage;
extern const std::string_view kExplainPage;
extern const std::string_view kFoveaPage;
extern const std::string_view kHeadsPage;
extern const std::string_view kInfoPage;
extern const std::string_view kInspectPage;
extern const std::string_view kLearnPage;
extern const std::string_view kMapPage;
extern const std::string_view kRecordPage;
extern const std::string_view kRolloutPage;
extern const std::string_view kTilePage;
extern const std::string_view kTrainPage;
extern const std::string_view kTrainScenePage;
extern const std::string_view kTrainTranslatePage;
extern const std::string_view kTranslatePage;
extern const std::string_view kViewPage;

}  // namespace fovea::cli
