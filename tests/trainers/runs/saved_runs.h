// Common code of tests of the files of a run.
#pragma once
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "belfry/framework/base/text.h"
#include "belfry/framework/checkpoint/checkpoint.h"
#include "belfry/framework/core_ops/initializers.h"
#include "belfry/framework/graph/graph.h"
#include "belfry/framework/graph/weights.h"
#include "belfry/tests/support/programs.h"

namespace belfry {

struct SavedVariable {
  std::string name;
  Tensor value;
  bool trainable = true;
  // Default: a weight if it is trained, else state.
  std::optional<VariableRole> role = {};

  std::vector<std::string> collections() const {
    std::vector<std::string> result{std::string(kGlobalVariables)};
    const VariableRole own =
        role.value_or(trainable ? VariableRole::kWeight : VariableRole::kState);
    if (own == VariableRole::kAverage) result.emplace_back(kAverageVariables);
    if (own == VariableRole::kState) result.emplace_back(kStateVariables);
    return result;
  }
};

// Saves runs in a folder of its own.
class SavedRunsTest : public testing::Test {
 protected:
  SavedRunsTest() : folder_(temporary_path(".runs")) { files_.create_directory(folder_); }
  ~SavedRunsTest() override { remove_tree(files_, folder_); }

  std::string at(const std::string& name) const { return cat(folder_, "/", name); }

  void save(const std::string& path, const std::vector<SavedVariable>& variables,
            std::uint64_t step = 40, const char* validated = "average") {
    Graph graph;
    std::vector<Variable> made;
    for (const SavedVariable& one : variables)
      made.push_back(graph.create_variable({one.name,
                                            one.value.shape(),
                                            {.dtype = one.value.dtype(),
                                             .initializer = init::zeros(),
                                             .trainable = one.trainable,
                                             .collections = one.collections()}},
                                           At()));
    Session session(graph, {.threads = 1});
    for (std::size_t i = 0; i < made.size(); ++i) session.write(made[i], variables[i].value);
    session.set_step(step);
    remove_tree(files_, path);
    save_checkpoint(session, path,
                    JsonValue::object()
                        .set("epoch", 2)
                        .set("seed", 7)
                        .set("shards", 4)
                        .set(kValidatedWeights, validated));
  }

  // A run directory with checkpoints of these steps. The last is the latest, and the first the
  // best.
  std::string save_run(const std::vector<int>& steps) {
    const std::string run = at("run"), folder = run + "/checkpoints";
    files_.create_directory(folder);
    const auto name = [](int step) { return cat("step-", std::string(7, '0'), step); };
    for (const int step : steps)
      save(cat(folder, "/", name(step)), {{"w", Tensor({2}, std::vector<float>{1, 2})}},
           static_cast<std::uint64_t>(step));
    std::filesystem::create_symlink(name(steps.back()), folder + "/latest");
    std::filesystem::create_symlink(name(steps.front()), folder + "/best");
    return run;
  }

  // Flips a bit of the last byte.
  void damage(const std::string& path) {
    std::vector<std::byte> bytes = files_.read(path);
    bytes.back() ^= std::byte{1};
    const auto file = files_.create(path);
    file->append(bytes);
    file->close();
  }

  FileSystem& files_ = local_file_system();
  std::string folder_;
};

inline Tensor counting(Shape shape) {
  Tensor tensor(std::move(shape), DType::kF32);
  float next = 1;
  for (float& value : tensor.mutable_data<float>()) value = next++;
  return tensor;
}

}  // namespace belfry
