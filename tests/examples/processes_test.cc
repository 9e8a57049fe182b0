// Training programs started as several processes give the hash of one.
#include <cstdlib>
#include <filesystem>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "belfry/framework/base/text.h"
#include "belfry/tests/support/process_threads.h"
#include "belfry/tests/support/programs.h"
#include "belfry/tests/support/sanitizers.h"

namespace belfry {
namespace processes_test {

using ::testing::HasSubstr;

const std::string kMnist = BELFRY_BIN_DIR "/mnist";
const std::string kArguments = " --global_batch_size=32 --max_steps=5 --threads=1";

Finished shell(const std::string& command) { return run_program("/bin/sh", {"-c", command}); }

// The line "params_hash ..." of what a program printed.
std::string hash_in(const Finished& finished) {
  const std::size_t at = finished.output.find("params_hash");
  EXPECT_NE(at, std::string::npos) << finished.output << finished.errors;
  return at == std::string::npos ? ""
                                 : finished.output.substr(at, finished.output.find('\n', at) - at);
}

// Rank 0 speaks.
std::string by_tcp(int size, const std::string& arguments, int port) {
  std::string command;
  for (int rank = size; rank-- > 0;)
    command += cat("RANK=", rank, " WORLD_SIZE=", size, " MASTER_ADDR=127.0.0.1 MASTER_PORT=", port,
                   " ", kMnist, arguments, rank > 0 ? " & " : "; status=$?; wait; exit $status");
  return command;
}

TEST(Processes, ByTcpGiveTheHashOfOne) {
  const std::string alone = hash_in(shell(kMnist + " --devices=cpu:4" + kArguments));
  for (const auto& [size, devices] : {std::pair(2, "cpu:2"), std::pair(4, "cpu:1")}) {
    const Finished all =
        shell(by_tcp(size, cat(" --devices=", devices, kArguments), test::free_port()));
    EXPECT_EQ(all.status, 0) << all.errors;
    EXPECT_EQ(hash_in(all), alone) << size;
    // One of them speaks.
    EXPECT_EQ(all.output.find("params_hash"), all.output.rfind("params_hash"));
  }
}

TEST(Processes, ByMpiGiveTheHashOfOne) {
  if (shell("command -v mpirun").status != 0 ||
      !std::filesystem::exists(BELFRY_BIN_DIR "/../lib/libbelfry_mpi.so"))
    GTEST_SKIP() << "no MPI here; scripts/setup installs one";
  const std::string mpirun = "mpirun --allow-run-as-root --bind-to none --oversubscribe -n ";
  const std::string alone = hash_in(shell(kMnist + " --devices=cpu:4" + kArguments));
  for (const auto& [size, devices] : {std::pair(2, "cpu:2"), std::pair(4, "cpu:1")}) {
    const Finished all = shell(cat(mpirun, size, " ", kMnist, " --devices=", devices, kArguments));
    EXPECT_EQ(all.status, 0) << all.errors;
    EXPECT_EQ(hash_in(all), alone) << size;
  }
}

TEST(Processes, WhatTheyCannotDoIsNamed) {
  for (const auto& [flag, why] :
       {std::pair(" --allreduce=ring", "--allreduce=collective, not replicated and ring"),
        std::pair(" --precision=f16", "--precision=f16 is for one process")}) {
    const Finished all =
        shell(by_tcp(2, cat(" --devices=cpu:1", kArguments, flag), test::free_port()));
    EXPECT_NE(all.status, 0);
    EXPECT_THAT(all.errors, HasSubstr(why));
  }
}

TEST(Processes, AFlagThatDiffersIsNamed) {
  const Finished all = shell(
      cat("p=", test::free_port(), "; RANK=1 WORLD_SIZE=2 MASTER_ADDR=127.0.0.1 MASTER_PORT=$p ",
          kMnist, kArguments, " --devices=cpu:1 --seed=3 & ",
          "RANK=0 WORLD_SIZE=2 MASTER_ADDR=127.0.0.1 MASTER_PORT=$p ", kMnist, kArguments,
          " --devices=cpu:1; status=$?; wait; exit $status"));
  EXPECT_EQ(all.status, 1);
  EXPECT_THAT(all.errors, HasSubstr("rank 1 on "));
  EXPECT_THAT(all.errors, HasSubstr("--seed"));
}

TEST(Processes, AMissingOneIsNamed) {
  const Finished alone = shell("RANK=0 WORLD_SIZE=2 MASTER_ADDR=127.0.0.1 MASTER_PORT=x " + kMnist);
  EXPECT_EQ(alone.status, 1);
  EXPECT_THAT(alone.errors, HasSubstr("MASTER_PORT=x"));
}

}  // namespace processes_test
}  // namespace belfry
