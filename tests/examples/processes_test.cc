// Training programs started as several processes give the hash of one.
#include <cstdlib>
#include <filesystem>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>
#include <unistd.h>

#include "belfry/framework/base/text.h"
#include "belfry/framework/group/tcp_group.h"
#include "belfry/tests/support/programs.h"
#include "belfry/tests/trainers/data/idx_files.h"

namespace belfry {
namespace processes_test {

using ::testing::HasSubstr;

const std::string kMnist = BELFRY_BIN_DIR "/mnist";

// Of mnist: a small data set, and few steps on one thread.
std::string data() {
  static const test::SmallDigits digits;
  return " --data_dir=" + digits.path();
}
std::string arguments() { return data() + " --global_batch_size=32 --max_steps=5 --threads=1"; }

Finished shell(const std::string& command) { return run_program("/bin/sh", {"-c", command}); }

// The line "params_hash ..." of what a program printed.
std::string hash_in(const Finished& finished) {
  const std::size_t at = finished.output.find("params_hash");
  EXPECT_NE(at, std::string::npos) << finished.output << finished.errors;
  return at == std::string::npos ? ""
                                 : finished.output.substr(at, finished.output.find('\n', at) - at);
}

// Rank 0 speaks.
std::string by_tcp(int size, const std::string& arguments, int port,
                   const std::string& program = kMnist) {
  std::string command;
  for (int rank = size; rank-- > 0;)
    command += cat("RANK=", rank, " WORLD_SIZE=", size, " MASTER_ADDR=127.0.0.1 MASTER_PORT=", port,
                   " ", program, arguments, rank > 0 ? " & " : "; status=$?; wait; exit $status");
  return command;
}

TEST(Processes, ByTcpGiveTheHashOfOne) {
  const std::string alone = hash_in(shell(kMnist + " --devices=cpu:4" + arguments()));
  for (const auto& [size, devices] : {std::pair(2, "cpu:2"), std::pair(4, "cpu:1")}) {
    const Finished all = shell(by_tcp(size, cat(" --devices=", devices, arguments()), free_port()));
    EXPECT_EQ(all.status, 0) << all.errors;
    EXPECT_EQ(hash_in(all), alone) << size;
    // One of them speaks.
    EXPECT_EQ(all.output.find("params_hash"), all.output.rfind("params_hash"));
  }
}

bool has_mpi() {
  return shell("command -v mpirun").status == 0 &&
         std::filesystem::exists(BELFRY_BIN_DIR "/../lib/libbelfry_mpi.so");
}

// Open MPI leaves memory behind when it ends.
const std::string kMpirun =
    "ASAN_OPTIONS=detect_leaks=0 mpirun --allow-run-as-root --bind-to none --oversubscribe -n ";

TEST(Processes, ByMpiGiveTheHashOfOne) {
  if (!has_mpi()) GTEST_SKIP() << "no MPI here; scripts/setup installs one";
  const std::string alone = hash_in(shell(kMnist + " --devices=cpu:4" + arguments()));
  for (const auto& [size, devices] : {std::pair(2, "cpu:2"), std::pair(4, "cpu:1")}) {
    const Finished all =
        shell(cat(kMpirun, size, " ", kMnist, " --devices=", devices, arguments()));
    EXPECT_EQ(all.status, 0) << all.errors;
    EXPECT_EQ(hash_in(all), alone) << size;
  }
}

// In an order of its own, so that only losses are near.
TEST(Processes, MpiAddsGradientsToo) {
  if (!has_mpi()) GTEST_SKIP() << "no MPI here; scripts/setup installs one";
  const auto report = [](const std::string& command) {
    const Finished done = shell(command + arguments() + " --json=-");
    EXPECT_EQ(done.status, 0) << done.errors;
    return nlohmann::json::parse(done.output);
  };
  const auto alone = report(kMnist + " --devices=cpu:2");
  for (const char* bucket : {" --bucket_mb=0", " --bucket_mb=0.1"}) {
    const auto sum = report(cat(kMpirun, "2 ", kMnist, " --devices=cpu:1 --allreduce=mpi", bucket));
    EXPECT_EQ(sum["canonical"], false);
    EXPECT_EQ(sum["replicas_equal"], true);
    EXPECT_NEAR(sum["loss"], alone["loss"], 1e-4);
  }
}

TEST(Processes, MpiAddsNothingWhereItHasNotStartedThem) {
  const Finished one = shell(kMnist + " --devices=cpu:2 --allreduce=mpi" + arguments());
  EXPECT_EQ(one.status, 2);
  EXPECT_THAT(one.errors, HasSubstr("mpi adds over several processes that MPI has started"));
  const Finished two =
      shell(by_tcp(2, " --devices=cpu:1 --allreduce=mpi" + arguments(), free_port()));
  EXPECT_NE(two.status, 0);
  EXPECT_THAT(two.errors, HasSubstr("--allreduce=mpi adds by MPI, and TCP carries messages here"));
}

// Over a link of TCP between two network namespaces.
TEST(Processes, OnTwoHostsGiveTheHashOfOne) {
  if (!has_mpi()) GTEST_SKIP() << "no MPI here; scripts/setup installs one";
  const std::string two_hosts = BELFRY_SOURCE_DIR "/scripts/two_hosts";
  const Finished names = shell(two_hosts + " -- hostname");
  if (names.status == 2) GTEST_SKIP() << names.errors;
  EXPECT_THAT(names.output, testing::AllOf(HasSubstr("one\n"), HasSubstr("two\n")));
  const Finished all = shell(cat("ASAN_OPTIONS=detect_leaks=0 ", two_hosts, " --rate=100mbit -- ",
                                 kMnist, " --devices=cpu:1 --json=-", arguments()));
  ASSERT_EQ(all.status, 0) << all.errors;
  const nlohmann::json report = nlohmann::json::parse(all.output);
  EXPECT_EQ(report["hosts"], nlohmann::json({"one", "two"}));
  const Finished alone = shell(cat(kMnist, " --devices=cpu:2 --json=-", arguments()));
  EXPECT_EQ(report["params_hash"], nlohmann::json::parse(alone.output)["params_hash"]);
}

TEST(Processes, OfABenchmarkGiveTheHashOfOne) {
  const std::string program = BELFRY_BIN_DIR "/train_bench";
  const std::string arguments =
      " --model=resnet20 --batch_norm=synchronised --global_batch_size=8 --num_batches=2 "
      "--num_warmup_batches=1 --threads=1 --shards=4";
  const std::string alone = hash_in(shell(cat(program, " --devices=cpu:2", arguments)));
  const Finished all = shell(by_tcp(2, cat(" --devices=cpu:1", arguments), free_port(), program));
  EXPECT_EQ(all.status, 0) << all.errors;
  EXPECT_EQ(hash_in(all), alone);
}

// The number of processes may change where a run goes on.
TEST(Processes, GoOnFromARunDirectory) {
  const auto part = [](int size, int steps, const std::string& run_dir) {
    const std::string arguments =
        cat(data(), " --devices=cpu:", 2 / size, " --global_batch_size=32 --threads=1",
            " --max_steps=", steps, run_dir);
    return shell(size == 1 ? kMnist + arguments : by_tcp(size, arguments, free_port()));
  };
  const std::string whole = hash_in(part(1, 12, ""));
  for (const auto& [first, second] : {std::pair(2, 1), std::pair(1, 2), std::pair(2, 2)}) {
    const std::string directory =
        cat(testing::TempDir(), "processes_test.", getpid(), ".", first, second);
    const std::string flag = " --run_dir=" + directory;
    EXPECT_EQ(part(first, 7, flag).status, 0);
    const Finished rest = part(second, 12, flag);
    EXPECT_EQ(rest.status, 0) << rest.errors;
    EXPECT_THAT(rest.output, HasSubstr("going on at step 7"));
    EXPECT_EQ(hash_in(rest), whole) << first << ", then " << second;
    const Finished again = part(second, 12, flag);
    EXPECT_EQ(again.status, 0) << again.errors;
    EXPECT_THAT(again.output, HasSubstr("this run has ended before"));
    std::filesystem::remove_all(directory);
  }
}

TEST(Processes, WhatTheyCannotDoIsNamed) {
  for (const auto& [flag, why] :
       {std::pair(" --allreduce=naive",
                  "--allreduce=naive: the strategy combines the gradients of one process"),
        std::pair(" --trainer=parameter_server", "--trainer=replicated, not parameter_server")}) {
    const Finished all = shell(by_tcp(2, cat(" --devices=cpu:1", arguments(), flag), free_port()));
    EXPECT_NE(all.status, 0);
    EXPECT_THAT(all.errors, HasSubstr(why));
  }
}

TEST(Processes, AreInTheReport) {
  const Finished all = shell(by_tcp(2, " --devices=cpu:2 --json=-" + arguments(), free_port()));
  EXPECT_EQ(all.status, 0) << all.errors;
  const nlohmann::json report = nlohmann::json::parse(all.output);
  EXPECT_EQ(report["processes"], 2);
  EXPECT_EQ(report["hosts"].size(), 2u);
  EXPECT_EQ(report["hosts"][0], report["hosts"][1]);
  ASSERT_EQ(report["devices"].size(), 4u);
  EXPECT_EQ(report["devices"][0], "/job:worker/replica:0/task:0/device:CPU:0");
  EXPECT_EQ(report["devices"][3], "/job:worker/replica:0/task:1/device:CPU:1");
  EXPECT_EQ(report["replicas_equal"], true);
  EXPECT_EQ(report["global_batch_size"], 32);
}

TEST(Processes, OfABenchmarkForOneAreRefused) {
  const Finished all = shell(by_tcp(2, " -e 4K", free_port(), BELFRY_BIN_DIR "/allreduce_bench"));
  EXPECT_NE(all.status, 0);
  EXPECT_THAT(all.errors, HasSubstr("WORLD_SIZE=2: allreduce_bench measures the devices of one"));
}

TEST(Processes, AFlagThatDiffersIsNamed) {
  const Finished all =
      shell(cat("p=", free_port(), "; RANK=1 WORLD_SIZE=2 MASTER_ADDR=127.0.0.1 MASTER_PORT=$p ",
                kMnist, arguments(), " --devices=cpu:1 --seed=3 & ",
                "RANK=0 WORLD_SIZE=2 MASTER_ADDR=127.0.0.1 MASTER_PORT=$p ", kMnist, arguments(),
                " --devices=cpu:1; status=$?; wait; exit $status"));
  EXPECT_EQ(all.status, 1);
  EXPECT_THAT(all.errors, HasSubstr("rank 1 on "));
  EXPECT_THAT(all.errors, HasSubstr("--seed"));
}

// Two processes that would train for hours. When both do, `then` is run, a script that knows rank
// 1 as $other and rank 0 as $first, which writes to the file $log.
Finished while_training(const std::string& then) {
  return shell(
      cat("log=$(mktemp); export WORLD_SIZE=2 MASTER_ADDR=127.0.0.1 MASTER_PORT=", free_port(),
          "; run='", kMnist, data(), " --devices=cpu:1 --global_batch_size=32",
          " --epochs=10000 --threads=1 --stall_warn_seconds=0.5'\n",
          "RANK=1 $run > /dev/null 2>&1 & other=$!\n", "RANK=0 $run > $log 2>&1 & first=$!\n",
          "until grep -q '^memory: ' $log; do sleep 0.1; done\n", then,
          "\nkill -9 $other $first 2> /dev/null; cat $log; rm $log"));
}

TEST(Processes, AKilledOneEndsTheOthersAndIsNamed) {
  const Finished all = while_training("kill -9 $other; wait $first; echo status $? >> $log");
  EXPECT_THAT(all.output, testing::ContainsRegex("error: .*rank 1, .*(has ended|is lost)"));
  EXPECT_THAT(all.output, HasSubstr("status 1"));
}

TEST(Processes, ASignalToOneStopsAllBehindTheSameStep) {
  const Finished all = while_training(
      "sleep 1; kill -TERM $other; wait $other; echo other $? >> $log; wait $first; "
      "echo first $? >> $log");
  EXPECT_THAT(all.output, HasSubstr("SIGTERM in another process: step "));
  EXPECT_THAT(all.output, HasSubstr("other 143"));
  EXPECT_THAT(all.output, HasSubstr("first 143"));
}

TEST(Processes, AStoppedOneIsToldFromALostOne) {
  const Finished all = while_training(
      "kill -STOP $other; until grep -q 'is stopped' $log; do sleep 0.1; done; sleep 6\n"
      "kill -CONT $other; sleep 1; kill -0 $first && kill -0 $other && echo both live >> $log");
  EXPECT_THAT(all.output, testing::ContainsRegex("has waited .* late: rank 1, .*: is stopped"));
  EXPECT_THAT(all.output, HasSubstr("both live"));
}

TEST(Processes, AMissingOneIsNamed) {
  const Finished alone = shell("RANK=0 WORLD_SIZE=2 MASTER_ADDR=127.0.0.1 MASTER_PORT=x " + kMnist);
  EXPECT_EQ(alone.status, 1);
  EXPECT_THAT(alone.errors, HasSubstr("MASTER_PORT=x"));
}

}  // namespace processes_test
}  // namespace belfry
