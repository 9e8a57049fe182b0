// Common code of tests of the function train().
#pragma once
#include <filesystem>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "belfry/framework/base/file_system.h"
#include "belfry/tests/support/path_of_test.h"
#include "belfry/tests/support/two_devices.h"
#include "belfry/tests/trainers/core/small_problem.h"
#include "belfry/trainers/program/train.h"

namespace belfry {

inline std::unique_ptr<Dataset> small_data(bool train) { return smooth_data(train ? 70 : 10); }

inline Recipe small_recipe() {
  return {.model = smooth_model,
          .data = small_data,
          .optimizer = sgd(0.1),
          .batch_size = 8,
          .epochs = 2};
}

struct TrainResult {
  int code;
  std::string out, error;
};

// Calls train() as from a command line, on two CPU devices unless the arguments name others.
inline TrainResult run_train(std::vector<std::string> arguments,
                             const Recipe& recipe = small_recipe()) {
  test::name_two_devices(arguments);
  arguments.insert(arguments.begin(), "/some/where/program");
  std::vector<char*> argv;
  for (std::string& argument : arguments) argv.push_back(argument.data());
  testing::internal::CaptureStdout();
  testing::internal::CaptureStderr();
  const int code = train(static_cast<int>(argv.size()), argv.data(), recipe);
  return {code, testing::internal::GetCapturedStdout(), testing::internal::GetCapturedStderr()};
}

// Has a path for --json, and for other files beside it.
class TrainTest : public testing::Test {
 protected:
  ~TrainTest() override { std::filesystem::remove(json_); }

  nlohmann::json report() const {
    const std::vector<std::byte> bytes = local_file_system().read(json_);
    return nlohmann::json::parse(
        std::string(reinterpret_cast<const char*>(bytes.data()), bytes.size()));
  }

  std::string path(const char* name) const { return json_.string() + name; }

  const std::filesystem::path json_ = path_of_test(".json");
};

// A recipe with data that a dry run must not read.
inline Recipe unreadable_recipe() {
  Recipe recipe = small_recipe();
  recipe.data = [](bool) -> std::unique_ptr<Dataset> {
    const std::vector<Dataset::Field> fields = small_data(true)->signature();
    return std::make_unique<LazyDataset>(
        fields, []() -> std::unique_ptr<Dataset> { throw IoError("the data were read"); });
  };
  return recipe;
}

}  // namespace belfry
