// What programs know of failures: the same without any sentence.
#include <ostream>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "belfry/framework/base/error_json.h"
#include "belfry/framework/base/file_system.h"
#include "belfry/framework/base/json.h"
#include "belfry/framework/base/text.h"
#include "belfry/framework/group/tcp_group.h"
#include "belfry/tests/support/programs.h"
#include "belfry/tests/support/sanitizers.h"
#include "belfry/trainers/runs/memory_folders.h"
#include "belfry/trainers/util/error_file.h"

namespace belfry {
namespace error_fields_test {

enum class By { kThreads, kTorchrun, kMpi, kBelfryRun };

// A failure of the process 1 of 2, or of threads, and what the first process knows of it.
struct Failure {
  By by;
  std::string arguments;
  int status = 1;
  std::string code;
  std::string op = "", device = "";
  std::string where = "";  // a part of it
  std::string option = "";
  std::string variable = "";  // a part of it
  std::int64_t step = 0;
  int rank = 1;
};

std::string name_of(By by) {
  constexpr const char* kNames[] = {"threads", "torchrun", "MPI", "belfry run"};
  return kNames[static_cast<int>(by)];
}

std::ostream& operator<<(std::ostream& out, const Failure& failure) {
  return out << name_of(failure.by) << ": " << failure.arguments;
}

constexpr char kCpu[] = "device:CPU:";

// What fails in a kernel, a data set, a callback, or before the first step.
std::vector<Failure> failures_by(By by) {
  const int rank = by == By::kThreads ? -1 : 1;
  const auto fails = [&](const std::string& how) {
    return cat("--fail=", how, " --fail_rank=", rank < 0 ? 0 : 1);
  };
  return {
      {by, fails("op"), 1, "OP", "/odd", kCpu, "/odd' (built at failures.cc", "", "", 3, rank},
      {by, fails("silent_op"), 1, "OP", "/odd", kCpu, "/odd' (built at failures.cc", "", "", 3,
       rank},
      {by, fails("memory"), 1, "OUT_OF_MEMORY", "/odd", kCpu, "/odd' (built at failures.cc", "", "",
       3, rank},
      {by, fails("device"), 1, "DEVICE", "/odd", kCpu, "/odd' (built at failures.cc", "", "", 3,
       rank},
      {by, fails("callback"), 1, "FAILED", "", "", "OddCallback::after_step", "", "", 3, rank},
      {by, fails("silent_callback"), 1, "FAILED", "", "", "OddCallback", "", "", 3, rank},
      {by, fails("file_callback"), 1, "IO", "", "", "OddCallback", "", "", 3, rank},
      {by, "--batch_size=1000", 2, "FLAG", "", "", "", "batch_size", "", 0, -2},
      {by, "--shards=3", 2, "FLAG", "", "", "", "shards", "", 0, -2},
      {by, "--early_stop=nothing:min:1", 2, "FLAG", "", "", "", "early_stop", "", 0, -2},
  };
}

std::vector<Failure> all_failures() {
  std::vector<Failure> all;
  for (const By by : {By::kThreads, By::kTorchrun, By::kMpi, By::kBelfryRun})
    for (Failure& failure : failures_by(by)) all.push_back(std::move(failure));
  for (const By by : {By::kThreads, By::kTorchrun}) {
    const int rank = by == By::kThreads ? -1 : -2;
    all.push_back(
        {by, "--fail=gather", 1, "FAILED", "", "", "gather() of 'odd samples'", "", "", 0, rank});
    all.push_back(
        {by, "--fail=evaluation", 1, "FAILED", "", "", "callback Evaluation", "", "", 0, rank});
    all.push_back({by, "--fail=data_dir", 1, "IO", "", "", "", "data_dir", "", 0, rank});
    all.push_back({by, "--batch_size=x", 2, "FLAG", "", "", "", "batch_size", "", 0, -2});
  }
  for (const By by : {By::kThreads, By::kTorchrun, By::kMpi, By::kBelfryRun})
    all.push_back(
        {by, "--fail=diverge", 1, "DIVERGED", "", "", "", "", "", 1, by == By::kThreads ? -1 : -2});
  all.push_back({By::kBelfryRun, "--fail=stall --fail_rank=1 --stall_abort_seconds=2", 75,
                 "STALLED", "", "", "", "", "", 0, -2});
  return all;
}

bool has_mpi() {
  return run_program("sh", {"-c", "command -v mpirun"}).status == 0 &&
         local_file_system().exists(cat(BELFRY_BIN_DIR, "/../lib/libbelfry_mpi.so"));
}

class ErrorFieldsTest : public testing::TestWithParam<Failure> {
 protected:
  ErrorFieldsTest() { local_file_system().create_directory(folder_); }
  ~ErrorFieldsTest() override {
    remove_memory_saves(run_id_of(folder_ + "/run"));  // a killed process leaves their folder
    remove_tree(local_file_system(), folder_);
  }

  // Runs the failure. Returns the exit status of the whole.
  int run(const Failure& failure, bool with_sentences) {
    preload_ =
        with_sentences ? "" : cat("LD_PRELOAD=", BELFRY_BIN_DIR, "/../lib/libno_sentences.so ");
    const std::string command =
        cat(BELFRY_BIN_DIR, "/failures --devices=cpu:", failure.by == By::kThreads ? 2 : 1,
            " --max_steps=6 --run_dir=run --overwrite --resume=never ", failure.arguments);
    switch (failure.by) {
      case By::kThreads: return shell(cat(error_file(0), command));
      case By::kTorchrun: return shell_of_two(command);
      case By::kMpi:
        return shell(cat("mpirun --allow-run-as-root --oversubscribe -n 1 env ", error_file(0),
                         command, " : -n 1 env ", error_file(1), command));
      default:
        return shell(
            cat("env ", preload_, BELFRY_BIN_DIR, "/belfry run -n 2 --log_dir=. -- ", command));
    }
  }

  // What the process of this rank has left for its launcher.
  ErrorFields error_of(int rank) const {
    const auto found = read_error_file(cat(folder_, "/rank_", rank, ".error.json"));
    EXPECT_TRUE(found.has_value()) << "rank " << rank << " has left nothing; " << said_;
    return found.value_or(ErrorFields());
  }

  // The error of summary.json; null without one.
  JsonValue summary_error() const {
    const std::string path = folder_ + "/run/summary.json";
    if (!local_file_system().exists(path)) return {};
    return JsonValue::parse(text_of_file(path)).at("error");
  }

  std::string said_;

 private:
  std::string error_file(int rank) const {
    return cat(kErrorFileVariable, "=", folder_, "/rank_", rank, ".error.json ", preload_);
  }
  int shell(const std::string& command) {
    const Finished done = run_program("sh", {"-c", cat("cd ", folder_, " && ", command)});
    said_ += cat(command, "\n", done.errors);
    return done.status;
  }
  // As torchrun does. Returns the status of rank 1.
  int shell_of_two(const std::string& command) {
    const auto start = [&, port = free_port()](int rank) {
      return cat("RANK=", rank, " LOCAL_RANK=", rank, " WORLD_SIZE=2 LOCAL_WORLD_SIZE=2 ",
                 "MASTER_ADDR=127.0.0.1 MASTER_PORT=", port, " BELFRY_TOKEN=a ", error_file(rank),
                 command);
    };
    return shell(cat(start(0), " & ", start(1), "; code=$?; wait; exit $code"));
  }

  const std::string folder_ = temporary_path(".errors");
  std::string preload_;
};

TEST_P(ErrorFieldsTest, AreTheSameWithoutSentences) {
  const Failure& wanted = GetParam();
  if (kSanitized) GTEST_SKIP() << "sanitizers are loaded first";
  if (wanted.by == By::kMpi && !has_mpi())
    GTEST_SKIP() << "no MPI here; scripts/setup installs one";
  for (const bool with_sentences : {true, false}) {
    SCOPED_TRACE(with_sentences ? "with sentences" : "without sentences");
    EXPECT_EQ(run(wanted, with_sentences), wanted.status) << said_;
    // mpirun ends others with the first.
    const ErrorFields error = error_of(wanted.by == By::kMpi && wanted.rank == 1 ? 1 : 0);
    EXPECT_EQ(name_of(error.kind), wanted.code);
    EXPECT_THAT(error.op, testing::EndsWith(wanted.op));
    EXPECT_THAT(error.device, testing::HasSubstr(wanted.device));
    EXPECT_THAT(error.where, testing::HasSubstr(wanted.where));
    EXPECT_EQ(error.option, wanted.option);
    EXPECT_THAT(error.variable, testing::HasSubstr(wanted.variable));
    if (wanted.rank > -2) {
      EXPECT_EQ(error.rank, wanted.rank);
    }
    if (wanted.step > 0 && wanted.rank < 0) {
      EXPECT_EQ(error.step, wanted.step);
    }
    if (!with_sentences) {
      EXPECT_EQ(error.why, "x");
    }
    const JsonValue summary = summary_error();
    if (summary.kind() != JsonValue::Kind::kObject) continue;
    EXPECT_EQ(summary.at("code").text(), wanted.code);
    if (!wanted.op.empty()) {
      EXPECT_THAT(summary.at("op").text(), testing::EndsWith(wanted.op));
    }
    if (!wanted.where.empty()) {
      EXPECT_THAT(summary.at("where").text(), testing::HasSubstr(wanted.where));
    }
    if (!wanted.variable.empty()) {
      EXPECT_THAT(summary.at("variable").text(), testing::HasSubstr(wanted.variable));
    }
    if (!wanted.option.empty()) {
      EXPECT_EQ(summary.at("option").text(), wanted.option);
    }
    if (wanted.rank >= 0) {
      EXPECT_EQ(summary.at("rank").integer(), wanted.rank);
    }
    if (wanted.step > 0 && wanted.rank < 0) {
      EXPECT_EQ(summary.at("step").integer(), wanted.step);
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Failures, ErrorFieldsTest, testing::ValuesIn(all_failures()));

}  // namespace error_fields_test
}  // namespace belfry
