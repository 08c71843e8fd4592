// SPDX-License-Identifier: Apache-2.0
//
// The picture of `fovea heads`: a row for each attention and batch item, a column for each head of
// the model.

#pragma once

#include <string>
#include <vector>

#include "cli/heads/compute.h"
#include "picture/heads.h"

namespace fovea::cli {

/// Returns whether a file name is that of a picture.
bool is_picture(const std::string& path);

/// Computes the maps of all heads. `heads` are in the order of compute_heads().
HeadGrid head_grid(const std::vector<HeadsSource>& sources, const std::vector<HeadOfSource>& heads,
                   int threads, Progress& progress);

/// Returns the file with the extension ".png", ".svg" or ".html".
std::string draw_heads_as(const std::string& ending, const HeadGrid& grid);

}  // namespace fovea::cli
