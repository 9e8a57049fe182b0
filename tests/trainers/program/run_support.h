// Common code of tests of run directories.
#pragma once
#include <fstream>
#include <functional>

#include "belfry/tests/trainers/program/train_support.h"
#include "belfry/tests/trainers/runs/run_files.h"

namespace belfry {

// Calls `f` before step `at`, counted from 0.
struct BeforeStep final : Callback {
  BeforeStep(std::int64_t at, std::function<void(Trainer&)> f) : step(at), act(std::move(f)) {}
  void before_step(Trainer& trainer, const StepInfo& info) override {
    if (info.step == step) act(trainer);
  }
  std::int64_t step;
  std::function<void(Trainer&)> act;
};

// A recipe that calls `act` before a step. If `act` throws, this looks as if the process were gone:
// no step is saved any more, and nothing is closed.
inline Recipe recipe_that(std::int64_t step, std::function<void(Trainer&)> act) {
  Recipe recipe = small_recipe();
  recipe.callbacks = {std::make_shared<BeforeStep>(step, std::move(act))};
  return recipe;
}

inline Recipe recipe_that_fails_at(std::int64_t step) {
  return recipe_that(step, [](Trainer&) { throw Error("the machine is down"); });
}

// Runs of two epochs of 8 steps on one device.
class TrainingRunTest : public TrainTest {
 protected:
  ~TrainingRunTest() override { std::filesystem::remove_all(directory_); }

  TrainResult start(std::vector<std::string> flags = {}, const Recipe& recipe = small_recipe()) {
    flags.push_back("--run_dir=" + directory_);
    flags.push_back("--json=" + json_.string());
    return run_train(std::move(flags), recipe);
  }
  static std::string text_in(const std::string& path) {
    std::ifstream file(path);
    return {std::istreambuf_iterator<char>(file), {}};
  }
  nlohmann::json summary() const { return test::summary_of(directory_); }
  std::vector<std::string> stats() const { return test::course_of(directory_); }
  std::vector<std::string> checkpoints() const {
    return local_file_system().list(directory_ + "/checkpoints");
  }
  // Expects the results of a run that is never stopped.
  void expect_as_never_stopped(const std::vector<std::string>& flags = {}) {
    const std::string hash = summary()["state_hash"];
    const std::vector<std::string> course = stats();
    std::filesystem::remove_all(directory_);
    EXPECT_EQ(start(flags).code, 0);
    EXPECT_EQ(hash, summary()["state_hash"]);
    EXPECT_EQ(course, stats());
  }

  const std::string directory_ = path(".run");
};

}  // namespace belfry
