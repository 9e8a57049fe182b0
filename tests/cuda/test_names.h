// The names of the GPU module's tests, from their sources. The tests are in a library that needs
// CUDA's. If it cannot be loaded, tests of these names are skipped.
#pragma once
#include <regex>
#include <set>
#include <string>
#include <utility>

#include "belfry/tests/framework/source_files.h"

namespace belfry::test {

// (suite, name) of each TEST and TEST_F of cuda_tests. Tests with parameters cannot be skipped by
// name.
inline std::set<std::pair<std::string, std::string>> cuda_test_names() {
  static const std::regex test(R"(\nTEST(?:_F)?\(\s*(\w+),\s*(\w+)\s*\))");
  std::set<std::pair<std::string, std::string>> names;
  for (const SourceFile& file : source_files({"tests/cuda", "tests/framework/cuda"})) {
    if (!file.path.ends_with("_test.cc")) continue;
    for (std::sregex_iterator at(file.text.begin(), file.text.end(), test), end; at != end; ++at)
      names.emplace((*at)[1], (*at)[2]);
  }
  return names;
}

}  // namespace belfry::test
