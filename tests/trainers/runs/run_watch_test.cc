// Other notes of a run: traces of chosen steps, and memory.
#include <fstream>

#include "belfry/framework/base/host_memory.h"
#include "belfry/framework/base/text.h"
#include "belfry/tests/support/programs.h"
#include "belfry/tests/trainers/program/train_support.h"

namespace belfry {
namespace run_watch_test {

using testing::ElementsAre;
using testing::HasSubstr;

class RunWatchTest : public TrainTest {
 protected:
  RunWatchTest() { std::filesystem::remove_all(run_); }
  ~RunWatchTest() override { std::filesystem::remove_all(run_); }

  void start(std::vector<std::string> flags) {
    flags.insert(flags.end(), {"--devices=cpu:2", "--run_dir=" + run_});
    const TrainResult done = run_train(std::move(flags));
    ASSERT_EQ(done.code, 0) << done.error;
  }
  std::vector<std::string> traces() const { return local_file_system().list(run_ + "/traces"); }

  const std::string run_ = path(".run");
};

TEST_F(RunWatchTest, TracesTheStepsThatWereChosen) {
  start({"--max_steps=4", "--trace_steps=2-3"});
  EXPECT_THAT(traces(), ElementsAre("step-00000002.json", "step-00000003.json"));
  const Finished checked =
      check_traces({run_ + "/traces/step-00000002.json", run_ + "/traces/step-00000003.json"});
  if (checked.status == -1) GTEST_SKIP() << "needs python3";
  EXPECT_EQ(checked.status, 0) << checked.output << checked.errors;
}

TEST_F(RunWatchTest, TracesStepsByTheirNumberInAllRuns) {
  start({"--max_steps=3"});
  start({"--max_steps=6", "--trace_steps=5"});
  EXPECT_THAT(traces(), ElementsAre("step-00000005.json"));
}

TEST_F(RunWatchTest, SaysThatItMadeNoStepToTrace) {
  const auto told = [&](const std::string& steps, const std::string& most) {
    const TrainResult done = run_train(
        {"--devices=cpu:2", "--run_dir=" + run_, "--trace_steps=" + steps, "--max_steps=" + most});
    EXPECT_EQ(done.code, 0);
    return done.error;
  };
  EXPECT_THAT(told("9-10", "3"),
              testing::HasSubstr("--trace_steps=9-10 traced nothing: this run made steps 1 to 3"));
  EXPECT_THAT(told("2-3", "6"), testing::HasSubstr("this run made steps 4 to 6"));
  EXPECT_THAT(told("6", "7"), testing::HasSubstr("this run made steps 7 to 7"));
  EXPECT_THAT(told("8-20", "8"), testing::Not(testing::HasSubstr("traced nothing")));
}

TEST_F(RunWatchTest, NotesMemoryEverySoManySteps) {
  start({"--max_steps=5", "--memory_every=2"});
  std::ifstream file(run_ + "/stats.jsonl");
  std::vector<int> steps;
  for (std::string text; std::getline(file, text);) {
    const auto line = nlohmann::json::parse(text);
    if (!line.contains("host_bytes")) continue;
    steps.push_back(line["step"]);
    EXPECT_GT(line["host_bytes"], 1 << 20);
    EXPECT_LE(line["host_bytes"], peak_resident_bytes());
    EXPECT_GT(line["device_bytes/CPU:0"], 0);
    EXPECT_GT(line["device_bytes/CPU:1"], 0);
  }
  EXPECT_THAT(steps, ElementsAre(2, 4));
  const std::string events = run_ + "/tensorboard/train";
  std::string bytes;
  for (const std::string& name : local_file_system().list(events)) {
    std::ifstream written(events + "/" + name, std::ios::binary);
    bytes.append(std::istreambuf_iterator<char>(written), {});
  }
  EXPECT_THAT(bytes, HasSubstr("host_bytes"));
  EXPECT_THAT(bytes, HasSubstr("device_bytes/CPU:1"));
}

TEST(RunWatch, RefusesStepsThatCannotBe) {
  const auto refusal = [](std::vector<std::string> flags) {
    const TrainResult done = run_train(std::move(flags));
    EXPECT_EQ(done.code, 2);
    return done.error;
  };
  EXPECT_THAT(refusal({"--trace_steps=2"}), HasSubstr("--run_dir=DIR"));
  EXPECT_THAT(refusal({"--memory_every=2"}), HasSubstr("--run_dir=DIR"));
  for (const char* steps : {"0", "3-2", "x", "2-", "-2", "1-2-3"})
    EXPECT_THAT(refusal({cat("--trace_steps=", steps), "--run_dir=d"}),
                HasSubstr(cat("--trace_steps=", steps)));
  EXPECT_THAT(refusal({"--trace_steps=2", "--trace_file=f", "--run_dir=d"}),
              HasSubstr("leave one of them out"));
}

}  // namespace run_watch_test
}  // namespace belfry
