// Training programs whose op, data set or callback hangs or throws.
#include <algorithm>
#include <atomic>
#include <chrono>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <map>
#include <memory>
#include <thread>

#include <unistd.h>

#include "belfry/framework/base/before_log.h"
#include "belfry/framework/base/text.h"
#include "belfry/framework/group/tcp_group.h"
#include "belfry/ops/operand.h"
#include "belfry/tests/trainers/program/run_support.h"
#include "belfry/trainers/core/trainer.h"
#include "belfry/trainers/util/error_file.h"

// Classes of a user.
namespace own_program {

using namespace belfry;

// Calls a function in front of what it is to do.
using Act = std::function<void()>;

// The kernel acts, then copies its input.
Act act_in_kernel;

KernelRun act_kernel(KernelPlan& plan) {
  return [bytes = plan.input(0).bytes()](const KernelPointers& p) {
    if (act_in_kernel) act_in_kernel();
    std::memcpy(p.output<void>(), p.input<void>(0), static_cast<std::size_t>(bytes));
  };
}

const Op kAct{.name = "Act",
              .inputs = 1,
              .shape = same_as_input,
              .no_gradient = "it is for tests",
              .reference = act_kernel,
              .cpu_only = "it is for tests"};

Output acting_model(Tower& tower, Output x, Output y) {
  if (tower.is_training()) x = tower.graph().add(kAct, {x}, "act").output();
  return smooth_model(tower, x, y);
}

// Acts before it gives samples to a step of training.
class ActingData final : public Dataset {
 public:
  explicit ActingData(Act act) : act_(std::move(act)), of_(smooth_data(70)) {}
  std::vector<Field> signature() const override { return of_->signature(); }
  std::int64_t size() const override { return of_->size(); }
  std::string describe() const override { return "my records"; }
  void gather(std::span<const std::int64_t> indices,
              std::span<std::byte* const> out) const override {
    of_->gather(indices, out);
  }
  void gather_training(const DataPass&, std::span<const std::int64_t> indices,
                       std::span<std::byte* const> out) const override {
    act_();
    of_->gather(indices, out);
  }

 private:
  const Act act_;
  const std::unique_ptr<Dataset> of_;
};

struct ActingCallback final : Callback {
  explicit ActingCallback(Act f) : act(std::move(f)) {}
  void after_step(Trainer&, const StepInfo& info) override {
    if (info.step == 2) act();
  }
  Act act;
};

}  // namespace own_program

namespace belfry {
namespace hanging_run_test {

using own_program::Act;
using ::testing::HasSubstr;

enum class Where { kOp, kData, kCallback };

const char* name_of(Where where) {
  return where == Where::kOp ? "Op" : where == Where::kData ? "Data" : "Callback";
}

// A run that acts in one place.
Recipe acting_recipe(Where where, Act act) {
  Recipe recipe = small_recipe();
  own_program::act_in_kernel = nullptr;
  switch (where) {
    case Where::kOp:
      recipe.model = own_program::acting_model;
      own_program::act_in_kernel = std::move(act);
      break;
    case Where::kData:
      recipe.data = [act](const RunDirs&, bool train) -> std::unique_ptr<Dataset> {
        if (!train) return nullptr;
        return std::make_unique<own_program::ActingData>(act);
      };
      break;
    case Where::kCallback:
      recipe.callbacks = {std::make_shared<own_program::ActingCallback>(std::move(act))};
  }
  return recipe;
}

// The first call hangs until a line with the text is logged while it hangs.
class HangUntilTold {
 public:
  explicit HangUntilTold(std::string text)
      : copy_([this, text](std::string_view line) {
          if (hangs_ && line.find(text) != line.npos) told_ = true;
        }) {}
  void operator()() {
    hangs_ = true;
    while (!told_) std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }

 private:
  std::atomic<bool> hangs_{false}, told_{false};
  const LogCopy copy_;
};

struct Hang {
  Where where;
  const char* devices;
  int threads;
  const char* told;  // a regular expression
};

struct ActingRunTest : TrainingRunTest {
  ~ActingRunTest() override { own_program::act_in_kernel = nullptr; }

  // The last words of a process whose kErrorFileVariable names this file.
  std::string error_left() const {
    const std::optional<ErrorFields> error = read_error_file(path(".error"));
    std::filesystem::remove(path(".error"));
    return error ? error_text(*error) : "";
  }
};

class HangingRun : public ActingRunTest, public testing::WithParamInterface<Hang> {
 protected:
  std::vector<std::string> flags() const {
    return {cat("--devices=", GetParam().devices), cat("--threads=", GetParam().threads),
            "--max_steps=4"};
  }
};

TEST_P(HangingRun, IsNamedAndEndsWellIfItComesOn) {
  const auto hang = std::make_shared<HangUntilTold>("has made no progress");
  std::vector<std::string> all = flags();
  all.push_back("--stall_warn_seconds=0.2");
  const TrainResult done = start(all, acting_recipe(GetParam().where, [hang] { (*hang)(); }));
  EXPECT_EQ(done.code, 0) << done.error;
  EXPECT_THAT(done.error, testing::ContainsRegex(GetParam().told));
  EXPECT_EQ(summary()["steps"], 4);
}

TEST_P(HangingRun, SaysWhatTheFirstSignalWaitsFor) {
  const auto hang = std::make_shared<HangUntilTold>("once more ends the program at once");
  const auto asked = std::make_shared<std::atomic<bool>>(false);
  const TrainResult done = start(flags(), acting_recipe(GetParam().where, [hang, asked] {
                                   if (!asked->exchange(true)) ::kill(::getpid(), SIGTERM);
                                   (*hang)();
                                 }));
  EXPECT_EQ(done.code, 143) << done.error;
  EXPECT_THAT(done.error, HasSubstr("SIGTERM: waiting for "));
}

// A thread that hangs cannot be ended, so the program ends without it.
TEST_P(HangingRun, EndsIfItNeverComesOn) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  std::vector<std::string> all = flags();
  all.push_back("--stall_abort_seconds=1");
  const auto hang_for_ever = [&] {
    start(all, acting_recipe(GetParam().where, [] {
            for (;;) std::this_thread::sleep_for(std::chrono::hours(1));
          }));
  };
  EXPECT_EXIT(hang_for_ever(), testing::ExitedWithCode(75), "");
  const nlohmann::json ended = summary();
  EXPECT_EQ(ended["exit_code"], 75);
  EXPECT_EQ(ended["error"]["code"], "STALLED");
  EXPECT_THAT(ended["error"]["what"].get<std::string>(), testing::ContainsRegex(GetParam().told));
  if (GetParam().where == Where::kOp) {
    EXPECT_THAT(ended["error"]["op"].get<std::string>(), HasSubstr("act"));
    EXPECT_THAT(ended["error"]["device"].get<std::string>(), HasSubstr("CPU:"));
  }
}

// A signal, or the end of its time, asks a run to end. No end of a step comes that would obey.
class AskedHangingRun : public HangingRun {
 protected:
  void expect_end(bool by_signal) {
    GTEST_FLAG_SET(death_test_style, "threadsafe");
    std::vector<std::string> all = flags();
    all.push_back("--stall_warn_seconds=0.6");
    all.push_back("--save_every_steps=1");
    if (!by_signal) all.push_back("--max_time=00:01");
    const auto hang_for_ever = [&] {
      start(all, acting_recipe(GetParam().where, [by_signal] {
              if (by_signal) ::kill(::getpid(), SIGTERM);
              for (;;) std::this_thread::sleep_for(std::chrono::hours(1));
            }));
    };
    EXPECT_EXIT(hang_for_ever(), testing::ExitedWithCode(143), "");
    const nlohmann::json ended = summary();
    EXPECT_EQ(ended["exit_code"], 143);
    EXPECT_EQ(ended["finished"], false);
    EXPECT_EQ(ended["error"]["code"], "STALLED");
    EXPECT_THAT(ended["error"]["what"].get<std::string>(),
                testing::ContainsRegex(cat(by_signal ? "SIGTERM" : "the time is up",
                                           ", but the run has stalled: ", GetParam().told)));
    if (GetParam().where == Where::kCallback) {  // in step 3
      EXPECT_THAT(checkpoints(), testing::Contains("step-00000002"));
    }
  }
};

TEST_P(AskedHangingRun, EndsForASignal) { expect_end(true); }
TEST_P(AskedHangingRun, EndsWhenItsTimeIsUp) { expect_end(false); }

constexpr char kOpTold[] =
    "step 1 has made no progress for .* s: cpu:[01] has computed Act '[^']*act' \\(built at "
    "hanging_run_test.cc:[0-9]+\\) for ";
constexpr char kDataTold[] =
    "step 1 has made no progress for .* s: gather\\(\\) of 'my records' has taken ";
constexpr char kCallbackTold[] =
    "the callback own_program::ActingCallback::after_step at step 3 has made no progress for ";

const auto kHangs = testing::Values(
    Hang{Where::kOp, "cpu:1", 1, kOpTold}, Hang{Where::kOp, "cpu:2", 1, kOpTold},
    Hang{Where::kOp, "cpu:2", 2, kOpTold}, Hang{Where::kData, "cpu:1", 1, kDataTold},
    Hang{Where::kData, "cpu:2", 2, kDataTold}, Hang{Where::kCallback, "cpu:2", 2, kCallbackTold});

std::string name_of_hang(const testing::TestParamInfo<Hang>& one) {
  return cat(name_of(one.param.where), "Cpu", one.param.devices[4], "Threads", one.param.threads);
}

INSTANTIATE_TEST_SUITE_P(Program, HangingRun, kHangs, name_of_hang);
INSTANTIATE_TEST_SUITE_P(Program, AskedHangingRun, kHangs, name_of_hang);

// Of two processes, the second hangs between two steps.
class HangingProcess : public ActingRunTest, public testing::WithParamInterface<Hang> {
 protected:
  // Never returns.
  void run_rank(int rank, int port) {
    for (const auto& [name, value] :
         std::map<std::string, std::string>{{"RANK", cat(rank)},
                                            {"WORLD_SIZE", "2"},
                                            {"MASTER_ADDR", "127.0.0.1"},
                                            {"MASTER_PORT", cat(port)}})
      ::setenv(name.c_str(), value.c_str(), 1);
    const TrainResult done =
        start({"--devices=cpu:1", "--threads=1", "--max_steps=4", "--stall_abort_seconds=1"},
              acting_recipe(GetParam().where, [rank] {
                while (rank == 1) std::this_thread::sleep_for(std::chrono::hours(1));
              }));
    std::ofstream(path(".rank0")) << done.error << "exit code " << done.code << std::endl;
    ::_exit(done.code);
  }
  // What rank 0 printed last, when it has ended.
  std::string words_of_rank_0() const {
    for (;;) {
      const std::string words = text_in(path(".rank0"));
      if (words.find("exit code") != words.npos) return words;
      std::this_thread::sleep_for(std::chrono::milliseconds(10));
    }
  }
};

TEST_P(HangingProcess, EndsAllAndIsNamed) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  const auto hang_in_rank_1 = [&] {
    const int port = free_port();
    run_rank(::fork() == 0 ? 0 : 1, port);
  };
  EXPECT_EXIT(hang_in_rank_1(), testing::ExitedWithCode(75), "");
  const std::string told =
      cat("\\[rank 0, .*rank 1, .*the run has stalled: ", GetParam().told, ".*exit code 75");
  std::string words = words_of_rank_0();
  std::ranges::replace(words, '\n', ' ');
  EXPECT_THAT(words, testing::ContainsRegex(told));
  EXPECT_EQ(summary()["exit_code"], 75);
  EXPECT_EQ(summary()["error"]["code"], "STALLED");
  std::filesystem::remove(path(".rank0"));
}

INSTANTIATE_TEST_SUITE_P(Program, HangingProcess,
                         testing::Values(Hang{Where::kData, "cpu:1", 1, kDataTold},
                                         Hang{Where::kCallback, "cpu:1", 1, kCallbackTold}),
                         [](const auto& one) { return name_of(one.param.where); });

// Of two processes, the second compares variables after a step, and the first makes the next step.
class MutualWait : public ActingRunTest {
 protected:
  struct ComparesOne final : Callback {
    void after_step(Trainer& trainer, const StepInfo& info) override {
      if (info.step == 2 && trainer.graph().process().rank == 1)
        trainer.loop().compare_processes(3);
    }
  };
  // Runs both, and never returns.
  void run(const std::vector<std::string>& flags) {
    const std::string port = cat(free_port());
    const std::string rank = ::fork() == 0 ? "0" : "1";
    if (rank == "1") ::setenv(kErrorFileVariable, path(".error").c_str(), 1);
    for (const auto& [name, value] :
         std::map<std::string, std::string>{{"RANK", rank},
                                            {"WORLD_SIZE", "2"},
                                            {"MASTER_ADDR", "127.0.0.1"},
                                            {"MASTER_PORT", port}})
      ::setenv(name.c_str(), value.c_str(), 1);
    std::vector<std::string> all{"--devices=cpu:1", "--threads=1"};
    all.insert(all.end(), flags.begin(), flags.end());
    Recipe recipe = small_recipe();
    recipe.callbacks = {std::make_shared<ComparesOne>()};
    const TrainResult done = start(all, recipe);
    std::fputs(done.error.c_str(), stderr);
    ::_exit(done.code);
  }
};

TEST_F(MutualWait, EndsAndSaysWhoWaitsForWhom) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  EXPECT_EXIT(run({"--stall_abort_seconds=1"}), testing::ExitedWithCode(75),
              "all processes wait for each other, and nothing has moved for .*waits for rank 0, .* "
              "between two steps");
}

TEST_F(MutualWait, EndsWhenItsTimeIsUp) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  EXPECT_EXIT(run({"--stall_warn_seconds=0.3", "--max_time=00:02"}), testing::ExitedWithCode(143),
              "");
  EXPECT_THAT(error_left(), testing::ContainsRegex("the time is up, but the run has stalled: .*all "
                                                   "processes wait for each other"));
}

// Before there is a step. Nothing is said of a run that has not begun.
class HangingSetup : public ActingRunTest {
 protected:
  void expect_end(const Recipe& recipe, const std::string& what) {
    GTEST_FLAG_SET(death_test_style, "threadsafe");
    const auto hang_for_ever = [&] {
      ::setenv(kErrorFileVariable, path(".error").c_str(), 1);
      start({"--devices=cpu:1", "--stall_warn_seconds=0.2", "--stall_abort_seconds=1"}, recipe);
    };
    EXPECT_EXIT(hang_for_ever(), testing::ExitedWithCode(75), "");
    EXPECT_THAT(error_left(), testing::ContainsRegex(cat("the run has stalled: ", what,
                                                         " has made no progress for ")));
    EXPECT_FALSE(std::filesystem::exists(directory_ + "/summary.json"));
  }
  static void hang() {
    for (;;) std::this_thread::sleep_for(std::chrono::hours(1));
  }
};

struct HangsInCheck final : Callback {
  void check(Trainer&) const override {
    for (;;) std::this_thread::sleep_for(std::chrono::hours(1));
  }
};

TEST_F(HangingSetup, OfItsDataEnds) {
  Recipe recipe = small_recipe();
  recipe.data = [](const RunDirs&, bool) -> std::unique_ptr<Dataset> {
    hang();
    return nullptr;
  };
  expect_end(recipe, "the data function of the recipe");
}

TEST_F(HangingSetup, OfItsModelEnds) {
  Recipe recipe = small_recipe();
  recipe.model = [](Tower& tower, Output x, Output y) {
    hang();
    return smooth_model(tower, x, y);
  };
  expect_end(recipe, "building the model");
}

TEST_F(HangingSetup, OfACallbackEnds) {
  Recipe recipe = small_recipe();
  recipe.callbacks = {std::make_shared<HangsInCheck>()};
  expect_end(recipe, "the callback .*HangsInCheck::check at step 1");
}

struct Thrown {
  Where where;
  const char* name;
  Act act;
  const char* what;  // a regular expression of the error
  const char* where_told;
};

class ThrowingRun : public ActingRunTest, public testing::WithParamInterface<Thrown> {};

TEST_P(ThrowingRun, NamesWhatThrewInItsTextAndInTheSummary) {
  const TrainResult done =
      start({"--devices=cpu:2", "--max_steps=4"}, acting_recipe(GetParam().where, GetParam().act));
  EXPECT_EQ(done.code, 1);
  EXPECT_THAT(done.error, testing::ContainsRegex(cat("error: ", GetParam().what)));
  const nlohmann::json error = summary()["error"];
  EXPECT_THAT(error["what"].get<std::string>(), testing::ContainsRegex(GetParam().what));
  EXPECT_THAT(error["where"].get<std::string>(), testing::ContainsRegex(GetParam().where_told));
  EXPECT_EQ(error["step"], GetParam().where == Where::kCallback ? 3 : 1);
  const bool lacks_memory = GetParam().name == std::string("BadAlloc");
  if (lacks_memory) {
    EXPECT_EQ(error["code"], "OUT_OF_MEMORY");
  }
  if (GetParam().where == Where::kOp) {
    EXPECT_EQ(error["code"], lacks_memory ? "OUT_OF_MEMORY" : "OP");
    EXPECT_THAT(error["op"].get<std::string>(), HasSubstr("act"));
  }
}

constexpr char kAct[] = "Act '[^']*act' \\(built at hanging_run_test.cc:[0-9]+\\), in step 1";
constexpr char kData[] = "gather\\(\\) of 'my records', in step 1";
constexpr char kCallback[] = "the callback own_program::ActingCallback::after_step at step 3";
constexpr char kInt[] = "it threw the int 42, which is no std::exception";

constexpr char kStarvedOp[] =
    "Act '[^']*act' \\(built at hanging_run_test.cc:[0-9]+\\): there was no memory left for what "
    "it needs while it runs";

void throw_exception() { throw std::runtime_error("boom"); }
void throw_error() { throw Error("boom"); }
void throw_int() { throw 42; }
void throw_bad_alloc() { throw std::bad_alloc(); }

std::vector<Thrown> all_thrown() {
  static std::vector<std::string> texts;
  texts.reserve(100);
  const auto text = [](const char* place, const char* said) {
    texts.push_back(cat(place, ": ", said));
    return texts.back().c_str();
  };
  std::vector<Thrown> all;
  const std::pair<Where, std::pair<const char*, const char*>> places[] = {
      {Where::kOp, {"Op", kAct}},
      {Where::kData, {"Data", kData}},
      {Where::kCallback, {"Callback", kCallback}}};
  for (const auto& [where, place] : places) {
    all.push_back({where, "Exception", throw_exception, text(place.second, "boom"), place.second});
    all.push_back({where, "Error", throw_error, text(place.second, "boom"), place.second});
    all.push_back({where, "Int", throw_int, text(place.second, kInt), place.second});
    const char* const lacking =
        where == Where::kOp ? kStarvedOp : text(place.second, "there was no memory left");
    all.push_back({where, "BadAlloc", throw_bad_alloc, lacking, place.second});
  }
  return all;
}

INSTANTIATE_TEST_SUITE_P(Program, ThrowingRun, testing::ValuesIn(all_thrown()),
                         [](const auto& one) {
                           return cat(name_of(one.param.where), one.param.name);
                         });

}  // namespace hanging_run_test
}  // namespace belfry
