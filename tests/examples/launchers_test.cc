// Training programs under launchers: real ones where they are installed, else their environment.
#include <cstdlib>
#include <functional>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include "belfry/framework/base/text.h"
#include "belfry/framework/group/tcp_group.h"
#include "belfry/tests/support/programs.h"
#include "belfry/tests/support/sanitizers.h"
#include "belfry/tests/trainers/data/idx_files.h"

namespace belfry {
namespace launchers_test {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

Finished shell(const std::string& command) { return run_program("/bin/sh", {"-c", command}); }

std::string mnist(int devices) {
  static const test::SmallDigits digits;
  return cat(BELFRY_BIN_DIR "/mnist --data_dir=", digits.path(), " --devices=cpu:", devices,
             " --global_batch_size=32 --max_steps=5 --threads=1 --shards=4 ");
}

std::string hash_in(const Finished& finished) {
  const std::size_t at = finished.output.find("params_hash");
  EXPECT_NE(at, std::string::npos) << finished.output << finished.errors;
  if (at == std::string::npos) return "";
  return finished.output.substr(at, finished.output.find('\n', at) - at);
}

std::string hash_of_one() {
  static const std::string hash = hash_in(shell(mnist(4)));
  return hash;
}

// Starts four processes, each with `of_rank(rank)` in its environment. Returns the end of rank 0.
Finished started(const std::function<std::string(int rank)>& of_rank, const std::string& command) {
  std::string all;
  for (int rank = 4; rank-- > 0;)
    all += cat("env ", of_rank(rank), " ", command,
               rank > 0 ? "& " : "; status=$?; wait; exit $status");
  return shell(all);
}

// Each test has a job of its own, and so ports of its own.
std::string slurm(int rank, int step, const std::string& host = "localhost") {
  return cat("SLURM_STEP_NUM_TASKS=4 SLURM_PROCID=", rank, " SLURM_LOCALID=", rank,
             " SLURM_STEP_NODELIST=", host, " SLURM_JOB_ID=", ::getpid(), " SLURM_STEP_ID=", step);
}

TEST(Launchers, SlurmByItsEnvironmentGivesTheHashOfOne) {
  const Finished all = started([](int rank) { return slurm(rank, 0); }, mnist(1));
  EXPECT_EQ(all.status, 0) << all.errors;
  EXPECT_EQ(hash_in(all), hash_of_one());
}

TEST(Launchers, SlurmWithoutATokenSaysWhatToExport) {
  const Finished one = shell(cat("env HOME=/nowhere ", slurm(1, 1, "node[7-8]"), " ", mnist(1)));
  EXPECT_EQ(one.status, 2);
  EXPECT_THAT(one.errors, AllOf(HasSubstr("the processes meet at node7"),
                                HasSubstr("export BELFRY_TOKEN=$(openssl rand -hex 16)"),
                                HasSubstr("~/.belfry/token"), HasSubstr("--insecure")));
}

TEST(Launchers, KubernetesByItsEnvironmentGivesTheHashOfOne) {
  const Finished all = started(
      [port = free_port()](int rank) {
        return cat("JOB_COMPLETION_INDEX=", rank,
                   " WORLD_SIZE=4 MASTER_ADDR=localhost BELFRY_TOKEN=secret MASTER_PORT=", port);
      },
      mnist(1));
  EXPECT_EQ(all.status, 0) << all.errors;
  EXPECT_EQ(hash_in(all), hash_of_one());
}

TEST(Launchers, WhatIsHalfSetIsAMistake) {
  for (const auto& [environment, told] :
       {std::pair("JOB_COMPLETION_INDEX=1 WORLD_SIZE=4 BELFRY_TOKEN=secret", "no MASTER_ADDR"),
        {"SLURM_STEP_NUM_TASKS=4", "no SLURM_PROCID"}}) {
    const Finished one = shell(cat("env ", environment, " ", mnist(1)));
    EXPECT_EQ(one.status, 2);
    EXPECT_THAT(one.errors,
                AllOf(HasSubstr(told), HasSubstr("--mpi=off"), Not(HasSubstr("secret"))));
  }
}

// As the manifest for Kubeflow Trainer passes its variables on.
TEST(Launchers, KubeflowByItsEnvironmentGivesTheHashOfOne) {
  const std::string command =
      cat("sh -c 'RANK=$PET_NODE_RANK WORLD_SIZE=$PET_NNODES MASTER_ADDR=$PET_MASTER_ADDR "
          "MASTER_PORT=$PET_MASTER_PORT exec ",
          mnist(1), "'");
  const Finished all = started(
      [port = free_port()](int rank) {
        return cat("JOB_COMPLETION_INDEX=", rank, " PET_NODE_RANK=", rank,
                   " PET_NNODES=4 PET_NPROC_PER_NODE=1 PET_MASTER_ADDR=localhost PET_MASTER_PORT=",
                   port, " BELFRY_TOKEN=secret");
      },
      command);
  EXPECT_EQ(all.status, 0) << all.errors;
  EXPECT_EQ(hash_in(all), hash_of_one());
}

TEST(Launchers, ManifestsFitTheirSchemas) {
  const std::string script = BELFRY_SOURCE_DIR "/scripts/check_launch_files ";
  const Finished checked = shell(script);
  if (checked.status == 77) GTEST_SKIP() << checked.output;
  EXPECT_EQ(checked.status, 0) << checked.output << checked.errors;
  const std::string wrong = temporary_path(".yaml");
  const auto told = [&](const std::string& change) {
    const Finished made =
        shell(cat("sed '", change, "' " BELFRY_SOURCE_DIR "/examples/launch/jobset.yaml > ", wrong,
                  "; ", script, wrong));
    EXPECT_EQ(made.status, 1) << change;
    return made.output;
  };
  EXPECT_THAT(told("s/backoffLimit/backOffLimit/"), HasSubstr("spec.backOffLimit"));
  EXPECT_THAT(told("s/completions: 4/completions: four/"), HasSubstr("completions"));
}

// torchrun itself, of an installed PyTorch.
class TorchrunTest : public testing::Test {
 protected:
  void SetUp() override {
    if (shell("command -v torchrun").status != 0) GTEST_SKIP() << "there is no torchrun on PATH";
    if (kSanitized) GTEST_SKIP() << "it has no part in what sanitizers find";
  }
  Finished run(const std::string& arguments) const {
    return shell(
        cat("torchrun --no-python --nproc-per-node=2 --master-port=", free_port(), " ", arguments));
  }
};

TEST_F(TorchrunTest, GivesTheHashOfOne) {
  for (const char* const way : {"", "--standalone "}) {
    const Finished all = run(way + mnist(2));
    EXPECT_EQ(all.status, 0) << all.errors;
    EXPECT_EQ(hash_in(all), hash_of_one()) << way;
  }
}

// Rank 0 only reports the failure of rank 1, and torchrun takes rank 1 for the cause.
TEST_F(TorchrunTest, PrintsOurErrorAsTheCause) {
  const Finished all =
      run(BELFRY_BIN_DIR "/failures --devices=cpu:1 --max_steps=6 --fail=belfry_op --fail_rank=1");
  EXPECT_EQ(all.status, 1);
  const std::size_t cause = all.errors.find("Root Cause (first observed failure)");
  ASSERT_NE(cause, std::string::npos) << all.errors;
  EXPECT_THAT(
      all.errors.substr(cause),
      AllOf(HasSubstr("rank      : 1"), HasSubstr("exitcode  : 1"), HasSubstr("the sample is odd"),
            HasSubstr("failures.cc"), Not(HasSubstr("To enable traceback"))));
}

TEST_F(TorchrunTest, StartsAgainWithAnotherRound) {
  const Finished all =
      run(cat("--max-restarts=1 sh -c 'test $TORCHELASTIC_RESTART_COUNT = 1 || exec " BELFRY_BIN_DIR
              "/failures --devices=cpu:1 --fail=killed --fail_rank=1; exec ",
              mnist(2), "'"));
  EXPECT_EQ(all.status, 0) << all.errors;
  EXPECT_EQ(hash_in(all), hash_of_one());
}

// A process that an earlier start has left behind.
TEST(Launchers, AProcessOfAnEarlierStartIsTurnedAway) {
  const std::string meeting =
      cat("WORLD_SIZE=2 MASTER_ADDR=localhost BELFRY_TOKEN=secret MASTER_PORT=", free_port(), " ");
  const auto process = [&](int rank, int start) {
    return cat(meeting, "RANK=", rank, " TORCHELASTIC_RESTART_COUNT=", start, " ", mnist(2));
  };
  const Finished all = shell(cat(process(0, 1), " > /dev/null & ", process(1, 0), "; code=$?; ",
                                 process(1, 1), " && wait && exit $code"));
  EXPECT_EQ(all.status, 1);
  EXPECT_THAT(all.errors, HasSubstr("it is of start 1 of the run, this process of start 0"));
}

// Takes minutes, needs root, and the network if the Debian of the test is not there yet.
TEST(LaunchersLong, ARealSlurmGivesTheHashOfOne) {
  if (!std::getenv("BELFRY_TEST_SLURM") || ::geteuid() != 0)
    GTEST_SKIP() << "BELFRY_TEST_SLURM=1, as root, runs tests/examples/slurm";
  const Finished all = shell(BELFRY_SOURCE_DIR "/tests/examples/slurm " BELFRY_BIN_DIR);
  EXPECT_EQ(all.status, 0) << all.output << all.errors;
  EXPECT_THAT(all.output, HasSubstr("cases, no difference"));
}

}  // namespace launchers_test
}  // namespace belfry
