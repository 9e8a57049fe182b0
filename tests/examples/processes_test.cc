// Training programs that run as several processes give the hash of one process.
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

// The flags of mnist for a small data set, and for few steps on one thread.
std::string data() {
  static const test::SmallDigits digits;
  return " --data_dir=" + digits.path();
}
std::string arguments() { return data() + " --global_batch_size=32 --max_steps=5 --threads=1"; }

Finished shell(const std::string& command) { return run_program("/bin/sh", {"-c", command}); }

// The rest of the line after `text` in the output of a program.
std::string rest_after(const std::string& text, const Finished& finished) {
  const std::size_t at = finished.output.find(text);
  EXPECT_NE(at, std::string::npos) << finished.output << finished.errors;
  if (at == std::string::npos) return "";
  const std::size_t begin = at + text.size();
  return finished.output.substr(begin, finished.output.find('\n', begin) - begin);
}
std::string hash_in(const Finished& finished) { return rest_after("params_hash", finished); }

// Starts processes that talk by TCP. Rank 0 prints.
std::string by_tcp(int size, const std::string& arguments, int port,
                   const std::string& program = kMnist) {
  std::string command;
  for (int rank = size; rank-- > 0;)
    command += cat("RANK=", rank, " WORLD_SIZE=", size, " MASTER_ADDR=127.0.0.1 MASTER_PORT=", port,
                   " ", program, arguments, rank > 0 ? " & " : "; status=$?; wait; exit $status");
  return command;
}

// Pairs of settings; tests/examples/one_hash tries all. Each of four processes has 8 of the
// samples.
std::string dropout() { return arguments() + " --dropout=0.5 --shards=16"; }

TEST(Processes, ByTcpGiveTheHashOfOne) {
  const std::string alone = hash_in(shell(kMnist + " --devices=cpu:4" + dropout()));
  for (const auto& [size, flags] : {std::pair(2, " --devices=cpu:2 --bucket_mb=0.05 --threads=2"),
                                    std::pair(4, " --devices=cpu:1 --bucket_mb=0")}) {
    const Finished all = shell(by_tcp(size, dropout() + flags, free_port()));
    EXPECT_EQ(all.status, 0) << all.errors;
    EXPECT_EQ(hash_in(all), alone) << size;
    // Only one of them prints.
    EXPECT_EQ(all.output.find("params_hash"), all.output.rfind("params_hash"));
  }
}

TEST(Processes, DrawTheNoiseOfOne) {
  const std::string vae = BELFRY_BIN_DIR "/vae";
  const Finished one = shell(vae + " --devices=cpu:4" + arguments());
  const Finished two = shell(by_tcp(2, arguments() + " --devices=cpu:2", free_port(), vae));
  EXPECT_EQ(two.status, 0) << two.errors;
  EXPECT_EQ(hash_in(two), hash_in(one));
  EXPECT_EQ(rest_after("\n  loss", two), rest_after("\n  loss", one)) << "of the evaluation, too";
}

bool has_mpi() {
  return shell("command -v mpirun").status == 0 &&
         std::filesystem::exists(BELFRY_BIN_DIR "/../lib/libbelfry_mpi.so");
}

// Open MPI does not free all its memory at the end.
const std::string kMpirun =
    "ASAN_OPTIONS=detect_leaks=0 mpirun --allow-run-as-root --bind-to none --oversubscribe -n ";

TEST(Processes, ByMpiGiveTheHashOfOne) {
  if (!has_mpi()) GTEST_SKIP() << "no MPI here; scripts/setup installs one";
  const std::string alone = hash_in(shell(kMnist + " --devices=cpu:4" + dropout()));
  for (const auto& [size, flags] :
       {std::pair(2, " --devices=cpu:2 --bucket_mb=0"),
        std::pair(4, " --devices=cpu:1 --bucket_mb=0.05 --threads=2")}) {
    const Finished all = shell(cat(kMpirun, size, " ", kMnist, dropout(), flags));
    EXPECT_EQ(all.status, 0) << all.errors;
    EXPECT_EQ(hash_in(all), alone) << size;
  }
}

// A thread of MPI moves messages. After a failure it must not touch memory that is given back.
TEST(Processes, ByMpiMayFailWhileMessagesAreUnderWay) {
  if (!has_mpi() || !std::filesystem::exists(BELFRY_BIN_DIR "/mpi_failure"))
    GTEST_SKIP() << "no MPI here; scripts/setup installs one";
  for (const char* const when : {"late", "meanwhile"})
    for (const char* const by : {"tcp,self", "vader,self"}) {
      const Finished all =
          shell(cat(kMpirun, "2 --mca btl ", by, " " BELFRY_BIN_DIR "/mpi_failure ", when));
      EXPECT_THAT(all.output, HasSubstr("rank 0 lives")) << when << by << all.errors;
      EXPECT_EQ(all.errors.find("Bad address"), std::string::npos) << all.errors;
    }
}

// MPI adds in an order of its own, so only losses are near.
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

std::int64_t optimizer_bytes(const std::string& memory_report) {
  const nlohmann::json report = nlohmann::json::parse(shell("cat " + memory_report).output);
  std::int64_t bytes = 0;
  for (const auto& device : report["devices"])
    bytes += device["kinds"]["optimizer"].get<std::int64_t>();
  return bytes;
}

// Rank 0 keeps half of the slots, give or take a block of the norm's tree.
TEST(Processes, KeepSlotsInPartsToTheHashOfOne) {
  const test::TemporaryFolder folder;
  const auto with_report = [&](const char* name) {
    return cat(arguments(), " --clip_norm=0.1 --json=- --memory_report=", folder.path(), "/", name);
  };
  const Finished alone = shell(kMnist + " --devices=cpu:2" + with_report("alone"));
  const Finished parts =
      shell(by_tcp(2, " --devices=cpu:1 --zero_stage=1" + with_report("parts"), free_port()));
  ASSERT_EQ(parts.status, 0) << parts.errors;
  const auto expected = nlohmann::json::parse(alone.output);
  const auto report = nlohmann::json::parse(parts.output);
  EXPECT_EQ(expected["zero_stage"], 0);
  EXPECT_EQ(report["zero_stage"], 1);
  for (const char* hash : {"params_hash", "state_hash"}) EXPECT_EQ(report[hash], expected[hash]);
  EXPECT_EQ(report["replicas_equal"], true);
  EXPECT_NEAR(static_cast<double>(optimizer_bytes(folder.path() + "/parts")),
              static_cast<double>(optimizer_bytes(folder.path() + "/alone")) / 2, 2 * 4 * 4096.0);
}

// Two processes begin a run, each with a part of the slots. One process ends it.
TEST(Processes, SaveWholeSlotsWhereEachHasAPart) {
  if (!has_mpi()) GTEST_SKIP() << "no MPI here; scripts/setup installs one";
  const test::TemporaryFolder folder;
  const auto part = [&](const std::string& start, int steps, const std::string& run_dir) {
    return shell(cat(start, kMnist, data(),
                     " --global_batch_size=32 --threads=1 --max_steps=", steps, run_dir));
  };
  const std::string run = cat(" --run_dir=", folder.path(), "/run");
  const std::string alone = hash_in(part("", 5, " --devices=cpu:2"));
  const Finished begun =
      part(kMpirun + "2 ", 3, " --devices=cpu:1 --zero_stage=1 --save_every_steps=2" + run);
  EXPECT_EQ(begun.status, 0) << begun.errors;
  const Finished ended = part("", 5, " --devices=cpu:2 --zero_stage=1" + run);
  EXPECT_EQ(ended.status, 0) << ended.errors;
  EXPECT_THAT(ended.errors, HasSubstr("--zero_stage=1 changes nothing: one process"));
  EXPECT_EQ(hash_in(ended), alone);
}

// The hosts are two network namespaces with a link of TCP.
TEST(Processes, OnTwoHostsGiveTheHashOfOne) {
  if (!has_mpi()) GTEST_SKIP() << "no MPI here; scripts/setup installs one";
  const std::string two_hosts = BELFRY_SOURCE_DIR "/scripts/two_hosts";
  const Finished names = shell(two_hosts + " -- hostname");
  if (names.status == 2) GTEST_SKIP() << names.errors;
  EXPECT_THAT(names.output, testing::AllOf(HasSubstr("one\n"), HasSubstr("two\n")));
  for (const auto& [size, hosts] :
       {std::pair(2, nlohmann::json({"one", "two"})), {4, {"one", "one", "two", "two"}}}) {
    const Finished all = shell(cat("ASAN_OPTIONS=detect_leaks=0 ", two_hosts, " --rate=100mbit -n ",
                                   size, " -- ", kMnist, " --devices=cpu:1 --json=-", arguments()));
    ASSERT_EQ(all.status, 0) << all.errors;
    const nlohmann::json report = nlohmann::json::parse(all.output);
    EXPECT_EQ(report["hosts"], hosts);
    const Finished alone = shell(cat(kMnist, " --devices=cpu:", size, " --json=-", arguments()));
    EXPECT_EQ(report["params_hash"], nlohmann::json::parse(alone.output)["params_hash"]);
  }
}

// Each bucket is under way by itself while others are.
TEST(Processes, OnALinkWithADelayGiveTheHashOfOne) {
  if (!has_mpi()) GTEST_SKIP() << "no MPI here; scripts/setup installs one";
  const std::string link =
      BELFRY_SOURCE_DIR "/scripts/two_hosts --rate=100mbit --delay=10ms --tcp -- ";
  const Finished names = shell(link + "hostname");
  if (names.status == 2) GTEST_SKIP() << names.errors;
  const std::string training = cat(kMnist, " --bucket_mb=0.1 --json=-", arguments(), " --devices=");
  const Finished all = shell(cat("ASAN_OPTIONS=detect_leaks=0 ", link, training, "cpu:1"));
  ASSERT_EQ(all.status, 0) << all.errors;
  const nlohmann::json report = nlohmann::json::parse(all.output);
  const nlohmann::json alone = nlohmann::json::parse(shell(training + "cpu:2").output);
  for (const char* hash : {"params_hash", "state_hash"}) EXPECT_EQ(report[hash], alone[hash]);
}

// Rank 1 has left the loop when rank 0 asks for its part of the slots, to save and to hash them.
// The answer, of some 800 KB, takes longer than messages may take that were sent before a process
// left.
TEST(Processes, LongThatHaveLeftServePartsOverASlowLink) {
  if (!has_mpi()) GTEST_SKIP() << "no MPI here; scripts/setup installs one";
  const std::string two_hosts = BELFRY_SOURCE_DIR "/scripts/two_hosts";
  const Finished names = shell(two_hosts + " -- hostname");
  if (names.status == 2) GTEST_SKIP() << names.errors;
  const test::TemporaryFolder folder;
  const std::string training =
      cat(kMnist, data(), " --global_batch_size=32 --max_steps=1 --threads=1 --json=- --devices=");
  const Finished all =
      shell(cat("ASAN_OPTIONS=detect_leaks=0 ", two_hosts, " --rate=2mbit -- ", training,
                "cpu:1 --zero_stage=1 --run_dir=", folder.path(), "/run"));
  ASSERT_EQ(all.status, 0) << all.errors;
  const nlohmann::json report = nlohmann::json::parse(all.output);
  const nlohmann::json alone = nlohmann::json::parse(shell(training + "cpu:2").output);
  for (const char* hash : {"params_hash", "state_hash"}) EXPECT_EQ(report[hash], alone[hash]);
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

// A run may go on with another number of processes.
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
        std::pair(" --trainer=parameter_server",
                  "--trainer=parameter_server is for one process")}) {
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

const std::string kAllReduce = BELFRY_BIN_DIR "/allreduce_bench";

// Checks the rows of the table: strategies, and wrong elements in and out of place.
void expect_rows(const Finished& done, const std::string& strategies) {
  EXPECT_EQ(done.status, 0) << done.errors;
  const nlohmann::json records = nlohmann::json::parse(done.output);
  std::string seen;
  for (const auto& record : records) {
    EXPECT_EQ(record["devices"], 4);
    EXPECT_EQ(record["processes"], 2);
    EXPECT_EQ(record["wrong"], 0);
    EXPECT_GT(record["busbw"], 0);
    if (record["in_place"] == true) seen += record["strategy"].get<std::string>() + " ";
  }
  EXPECT_EQ(seen, strategies);
}

TEST(Processes, AreTimedAsTheyReduceTogether) {
  const std::string sizes = " --devices=cpu:2 -b 4K -e 4K -n 2 -w 0 --threads=1";
  const Finished table =
      shell(by_tcp(2, sizes + " --strategies=collective", free_port(), kAllReduce));
  EXPECT_EQ(table.status, 0) << table.errors;
  EXPECT_THAT(table.output, testing::AllOf(HasSubstr("# 2 processes by TCP: rank 0 on "),
                                           HasSubstr("  algbw   busbw #wrong"),
                                           HasSubstr("# Out of bounds values : 0 OK")));
  EXPECT_EQ(table.output.find("# devices"), table.output.rfind("# devices")) << "one speaks";
  expect_rows(
      shell(by_tcp(2, sizes + " --strategies=collective,ring --json=-", free_port(), kAllReduce)),
      "collective ring ");
  if (!has_mpi()) GTEST_SKIP() << "no MPI here; scripts/setup installs one";
  expect_rows(shell(cat(kMpirun, "2 ", kAllReduce, sizes, " --strategies=mpi,ring --json=-")),
              "mpi ring ");
}

TEST(Processes, AreNotTimedByWhatOneProcessDoes) {
  for (const auto& [flags, why] :
       {std::pair(" --strategies=naive",
                  "--strategies=naive: the strategy combines the gradients of one process"),
        std::pair(" --update=momentum", "--update=momentum times the update of one process"),
        std::pair(" --strategies=auto --links=l",
                  "auto among --strategies predicts for the devices of one")}) {
    const Finished all =
        shell(by_tcp(2, cat(" --devices=cpu:1 -b 4K -e 4K", flags), free_port(), kAllReduce));
    EXPECT_EQ(all.status, 2);
    EXPECT_THAT(all.errors, HasSubstr(why));
  }
}

// A benchmark's rates count all processes, and its trace is one file.
TEST(Processes, OfABenchmarkAreInItsReportAndItsTrace) {
  const std::string trace = temporary_path(".trace");
  const Finished all = shell(by_tcp(
      2,
      cat(" --model=mlp --image_size=8 --devices=cpu:2 --batch_size=2 --num_batches=2 --threads=1 "
          "--num_warmup_batches=1 --json=- --trace_file=",
          trace),
      free_port(), BELFRY_BIN_DIR "/train_bench"));
  ASSERT_EQ(all.status, 0) << all.errors;
  const nlohmann::json report = nlohmann::json::parse(all.output);
  EXPECT_EQ(report["processes"], 2);
  EXPECT_EQ(report["hosts"].size(), 2u);
  EXPECT_EQ(report["devices"], 4);
  EXPECT_EQ(report["global_batch_size"], 8);
  EXPECT_GE(report["communication_hidden_share"], 0);
  EXPECT_LE(report["communication_hidden_share"], 1);
  const Finished checked = check_traces({trace});
  EXPECT_NE(checked.status, 1) << checked.output << checked.errors;
  std::filesystem::remove(trace);
}

TEST(Processes, OfARunTraceTheSameSteps) {
  const std::string trace = temporary_path(".trace");
  const Finished all = shell(
      by_tcp(2, cat(" --devices=cpu:1 --json=- --trace_file=", trace, arguments()), free_port()));
  ASSERT_EQ(all.status, 0) << all.errors;
  EXPECT_TRUE(nlohmann::json::parse(all.output)["communication_hidden_share"].is_number());
  const Finished checked = check_traces({trace});
  EXPECT_NE(checked.status, 1) << checked.output << checked.errors;
  std::filesystem::remove(trace);
}

TEST(Processes, ArePlannedWithoutBeingStarted) {
  const Finished plan = run_program(
      kMnist, {"--dry_run", "--processes=3", "--devices=cpu:2", "--batch_size=2", "--json=-"});
  ASSERT_EQ(plan.status, 0) << plan.errors;
  const nlohmann::json step = nlohmann::json::parse(plan.output)["step"];
  EXPECT_EQ(step["processes"], 3);
  EXPECT_EQ(step["between_hosts"]["links"].size(), 2u);
  EXPECT_THAT(plan.errors, HasSubstr("this is the plan of rank 0 of 3 processes"));
  const Finished other =
      shell(by_tcp(2, " --dry_run --processes=3 --devices=cpu:2" + data(), free_port()));
  EXPECT_EQ(other.status, 2);
  EXPECT_THAT(other.errors,
              HasSubstr("--processes=3, but a launcher has started 2 (WORLD_SIZE=2)"));
}

// Two processes. The second has a text of its own before or behind the command.
Finished unlike(const std::string& before, const std::string& behind) {
  const std::string run = cat(kMnist, " --devices=cpu:1", arguments());
  return shell(cat("export WORLD_SIZE=2 MASTER_ADDR=127.0.0.1 MASTER_PORT=", free_port(),
                   "; RANK=1 ", before, " ", run, behind, " & RANK=0 ", run,
                   " --json=-; status=$?; wait; exit $status"));
}

TEST(Processes, AFlagOrFileThatDiffersIsNamed) {
  const test::SmallDigits other(2048);
  for (const auto& [behind, why] :
       {std::pair<std::string, const char*>(" --seed=3", "--seed is 3 there, and 1 in rank 0"),
        {" --data_dir=" + other.path(),
         "the number of training samples is 2048 there, and 1024 in rank 0"}}) {
    const Finished all = unlike("", behind);
    EXPECT_EQ(all.status, 1);
    EXPECT_THAT(all.errors, HasSubstr("rank 1 on "));
    EXPECT_THAT(all.errors, HasSubstr(why));
    EXPECT_THAT(all.errors, testing::Not(HasSubstr("step 1")));
  }
}

TEST(Processes, AnotherInstructionSetIsToldAndNotCanonical) {
#if !BELFRY_ONEDNN
  GTEST_SKIP() << "the instructions of oneDNN alone can be limited";
#endif
  // oneDNN reads both names.
  for (const std::string limit : {"ONEDNN_MAX_CPU_ISA=SSE41", "DNNL_MAX_CPU_ISA=SSE41"}) {
    const Finished all = unlike(limit, "");
    ASSERT_EQ(all.status, 0) << all.errors;
    EXPECT_THAT(all.errors, HasSubstr(" with SSE4.1, rank 0 with ")) << limit;
    const nlohmann::json report = nlohmann::json::parse(all.output);
    EXPECT_EQ(report["canonical"], false);
    EXPECT_EQ(report["k_independent"], false);
    EXPECT_THAT(report["k_dependent_because"].get<std::string>(), HasSubstr("SSE4.1"));
  }
}

// What a mixed cluster saved is not what one of its hosts would have made.
TEST(Processes, OfTwoInstructionSetsNoteBothInACheckpoint) {
#if !BELFRY_ONEDNN
  GTEST_SKIP() << "the instructions of oneDNN alone can be limited";
#endif
  const std::string run = temporary_path(".run");
  const std::string command = cat(kMnist, arguments(), " --run_dir=", run, " --json=-");
  const Finished both =
      shell(cat("export WORLD_SIZE=2 MASTER_ADDR=127.0.0.1 MASTER_PORT=", free_port(),
                "; RANK=1 DNNL_MAX_CPU_ISA=SSE41 ", command, " --devices=cpu:1 & RANK=0 ", command,
                " --devices=cpu:1; status=$?; wait; exit $status"));
  ASSERT_EQ(both.status, 0) << both.errors;
  const Finished alone = shell(command + " --devices=cpu:2 --max_steps=8");
  ASSERT_EQ(alone.status, 0) << alone.errors;
  EXPECT_THAT(alone.errors, HasSubstr("resume: not the same bits because it was saved by Belfry "));
  EXPECT_THAT(alone.errors, HasSubstr(" (rank 0) and Belfry "));
  const nlohmann::json report = nlohmann::json::parse(alone.output);
  EXPECT_EQ(report["canonical"], false);
  EXPECT_THAT(report["k_dependent_because"].get<std::string>(),
              HasSubstr(" with SSE4.1 (rank 1) and goes on with Belfry "));
  std::filesystem::remove_all(run);
}

TEST(Processes, AnotherInstructionSetIsToldWhenARunGoesOn) {
#if !BELFRY_ONEDNN
  GTEST_SKIP() << "the instructions of oneDNN alone can be limited";
#endif
  const std::string run = temporary_path(".run");
  const std::string command =
      cat(kMnist, arguments(), " --devices=cpu:1 --run_dir=", run, " --json=-");
  const Finished limited = shell("DNNL_MAX_CPU_ISA=SSE41 " + command);
  ASSERT_EQ(limited.status, 0) << limited.errors;
  const Finished free = shell(command + " --max_steps=8");
  ASSERT_EQ(free.status, 0) << free.errors;
  EXPECT_THAT(free.errors, HasSubstr("resume: not the same bits because it was saved by Belfry "));
  EXPECT_EQ(nlohmann::json::parse(free.output)["canonical"], false);
  std::filesystem::remove_all(run);
}

// Two processes that would train for hours. When both train, the script `then` runs. It knows rank
// 0 as $first, rank 1 as $other and their output file as $log.
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

TEST(Processes, OnSeveralMachinesNeedATokenOrInsecure) {
  const std::string meet = cat("RANK=1 WORLD_SIZE=2 MASTER_ADDR=0.0.0.0 MASTER_PORT=", free_port(),
                               " TORCHELASTIC_RUN_ID=none ");
  const std::string run = cat(kMnist, data(), " --meeting_timeout_s=0.2");
  const Finished without = shell(meet + run);
  EXPECT_EQ(without.status, 2);
  EXPECT_THAT(without.errors, testing::AllOf(HasSubstr("meet at 0.0.0.0"),
                                             HasSubstr("BELFRY_TOKEN"), HasSubstr("--insecure")));
  for (const std::string& command : {meet + run + " --insecure", meet + "BELFRY_INSECURE=1 " + run,
                                     meet + "BELFRY_TOKEN=x " + run}) {
    const Finished with = shell(command);
    EXPECT_EQ(with.status, 1);
    EXPECT_THAT(with.errors, HasSubstr("has not reached rank 0 at 0.0.0.0:")) << command;
  }
}

TEST(Processes, ThatMayOpenTooFewFilesSaySoAtOnce) {
  const Finished few = shell(
      cat("ulimit -n 24; RANK=1 WORLD_SIZE=32 MASTER_ADDR=127.0.0.1 MASTER_PORT=", free_port(), " ",
          kMnist, data()));
  EXPECT_EQ(few.status, 1);
  EXPECT_THAT(few.errors,
              testing::AllOf(HasSubstr("needs 31 connections"), HasSubstr("ulimit -n")));
}

// As errors advise, and whoever has started them.
TEST(Processes, TrainAloneWithMpiOff) {
  const std::string hash = hash_in(shell(kMnist + " --devices=cpu:1" + arguments()));
  for (const std::string& launcher :
       {cat("RANK=1 WORLD_SIZE=2 MASTER_ADDR=127.0.0.1 MASTER_PORT=", free_port()),
        std::string("RANK=1 WORLD_SIZE=2"), std::string("RANK=1 WORLD_SIZE=2 MASTER_ADDR="),
        std::string("OMPI_COMM_WORLD_SIZE=2 OMPI_COMM_WORLD_RANK=1"),
        std::string("SLURM_STEP_NUM_TASKS=2")}) {
    const Finished alone =
        shell(cat(launcher, " ", kMnist, " --devices=cpu:1", arguments(), " --mpi=off"));
    EXPECT_EQ(alone.status, 0) << launcher << alone.errors;
    EXPECT_EQ(hash_in(alone), hash) << launcher;
  }
}

TEST(Processes, AMissingOneIsNamed) {
  const Finished alone = shell("RANK=0 WORLD_SIZE=2 MASTER_ADDR=127.0.0.1 MASTER_PORT=x " + kMnist);
  EXPECT_EQ(alone.status, 2);
  EXPECT_THAT(alone.errors, HasSubstr("MASTER_PORT=x"));
}

}  // namespace processes_test
}  // namespace belfry
