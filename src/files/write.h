// SPDX-License-Identifier: Apache-2.0
//
// The writers, one per format. The caller has checked the number of tensors and their names.

#pragma once

#include <span>

#include "fovea/files.h"

#include "io/output_file.h"

namespace fovea::files {

void write_npy(OutputFile& file, const TensorView& tensor);
void write_npz(OutputFile& file, std::span<const NamedTensor> tensors);
void write_safetensors(OutputFile& file, std::span<const NamedTensor> tensors);

}  // namespace fovea::files
