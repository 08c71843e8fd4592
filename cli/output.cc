// SPDX-License-Identifier: Apache-2.0
//
// Writing (output.h).

#include "output.h"

#include "core/output_file.h"

namespace fovea::cli {

void write_stdout(std::string_view text) { OutputFile::standard_output().write(text); }

void write_file(const std::string& path, std::string_view text) {
  OutputFile file(path);
  file.write(text);
  file.finish();
}

}  // namespace fovea::cli
