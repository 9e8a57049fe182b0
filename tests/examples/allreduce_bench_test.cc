// Runs the benchmark of reductions as people run it.

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "belfry/framework/base/file_system.h"
#include "belfry/framework/base/host_memory.h"
#include "belfry/framework/base/text.h"
#include "belfry/tests/support/programs.h"
#include "belfry/tests/support/sanitizers.h"

namespace belfry {
namespace allreduce_bench_test {

using testing::HasSubstr;

TEST(AllreduceBench, PrintsItsTableAndWritesJsonAndCsv) {
  const std::string json = temporary_path(".json"), csv = temporary_path(".csv");
  const Finished done = run_built(
      "allreduce_bench", {"-b", "8", "-e", "1K", "-f", "128", "-n5", "-w", "0", "--devices",
                          "cpu:3", "--strategies=all", "--json=" + json, "--csv=" + csv});
  EXPECT_EQ(done.status, 0) << done.errors;
  EXPECT_THAT(done.output, HasSubstr("\n        1024           256     float     sum      -1  "));
  EXPECT_THAT(done.output, HasSubstr("# hierarchical refused: hierarchical needs an "
                                     "even number of"));
  EXPECT_THAT(done.output, HasSubstr("# Out of bounds values : 0 OK\n# Avg bus bandwidth    : "));
  const auto records = nlohmann::json::parse(text_of_file(json));
  EXPECT_THAT(
      text_of_file(csv),
      testing::StartsWith("strategy,canonical,devices,processes,device_type,dtype,redop,bytes,"
                          "in_place,time_us,algbw,busbw,wrong,limit_us,agg_iters,"
                          "deterministic\n"));
  local_file_system().remove(json);
  local_file_system().remove(csv);
  ASSERT_GE(records.size(), 8u);
  for (const auto& record : records) {
    EXPECT_EQ(record["devices"], 3);
    EXPECT_EQ(record["device_type"], "cpu");
    EXPECT_EQ(record["wrong"], 0) << record;
    EXPECT_GT(record["time_us"].get<double>(), 0);
    EXPECT_GT(record["limit_us"].get<double>(), 0);
    EXPECT_DOUBLE_EQ(record["busbw"].get<double>(), record["algbw"].get<double>() * 4 / 3);
  }
}

TEST(AllreduceBench, RefusesWhatMakesNoSenseBeforeItMeasures) {
  const std::string half = cat(host_memory() / 2);
  const std::string dgx1 = cat("--links=", BELFRY_SOURCE_DIR, "/docs/links/dgx1.json");
  const std::pair<std::vector<std::string>, std::string> refusals[] = {
      {{"-b", "2"}, "less than one f32 of 4 bytes"},
      {{"-b", "2K", "-e", "1K"}, "-b 2K is more than -e 1K"},
      {{"-e", "1K"}, "--minbytes=32M, the default, is more than -e 1K"},
      {{"-d", "flaot"}, "did you mean 'float'?"},
      {{"-d", "i32", "-o", "avg"}, "the mean of integers is not defined"},
      {{"-o", "max"}, "neither sum nor avg"},
      {{"-f", "1"}, "-f 1 is not a whole number between 2"},
      {{"--strategies=rong"}, "unknown aggregation strategy 'rong'"},
      {{"--csv=a", "--json=./a"}, "would overwrite each other"},
      {{"--strategies=hierarchical", "--devices=cpu:3"}, "--strategies=hierarchical: "},
      {{"--strategies=naive,nccl"}, "--strategies=nccl: "},
      {{"--model=resnet5"}, "did you mean"},
      {{"--model=mlp", "-e", "8"}, "-e 8 has no use beside --model=mlp"},
      {{"--model=mlp", "-b", "1K"}, "-b 1K has no use beside --model=mlp"},
      {{"--model=mlp", "--minbytes=1K"}, "--minbytes=1K has no use beside --model=mlp"},
      {{"--maxbytes=x"}, "--maxbytes=x is no number of bytes"},
      {{"-n", "0"}, "-n 0 is not a whole number between 1"},
      {{"-c", "2"}, "-c 2 is neither true (or 1) nor false (or 0)"},
      {{"--num_gpus=2000", "--device=cpu"},
       "--num_gpus=2000 is not a whole number between 1 and 1024"},
      {{"--update=sgd"}, "say momentum"},
      {{"--update=momentum", "-d", "i32"}, "f32 or f64, not i32"},
      {{"--update=momentum", "--strategies=auto"}, "leave auto out"},
      {{"--strategies=ring,naive,ring"}, "ring is there twice"},
      {{"--strategies=all,naive"}, "naive is there twice"},
      {{"-d", "f16", "--strategies=collective,ring"}, "--strategies=ring: "},
      {{"-d", "bf16", "-o", "avg", "--strategies=collective:1k:naive"}, "no host kernel for bf16"},
      {{"-b", "0"}, "-b 0 leaves nothing to reduce"},
      {{"-b", "9223372036854775807"}, "-b 9223372036854775807 needs 8388608.00 TiB of memory"},
      {{"-b", half}, "-b " + half + " on --devices=cpu:2 needs "},
      {{"-b", "8", "-e", half, "-c0"}, "-e " + half + " on --devices=cpu:2 needs "},
      {{"-b", half, "-d", "f16", "--strategies=all"}, "use a smaller size"},
      {{"-b", half, "--update=momentum"}, "-b " + half + " on --devices=cpu:2 needs "},
      {{"--strategies=auto", "--devices=cpu:10", dgx1},
       dgx1 + ": the machine has 8 devices of type GPU, but 10 devices are asked for"},
      {{"--links=x"}, "without auto among --strategies there is none"},
      {{"--strategies=auto"},
       "--strategies=auto predicts for a machine; describe it by --links=FILE"},
      {{"--remeasure"}, "this flag was removed"},
      {{"--devices=gpu:2", "--logical_gpus=0"},
       "--logical_gpus=0 is not a whole number between 1 and 1024"},
      {{"--logical_gpus=2"}, "--logical_gpus=2 has no use for --devices=cpu:2, which names no GPU"},
      {{"--devices=gpu:1000"}, "--devices: 'gpu:1000'"},
      {{"--precision=bf16"}, "--precision=bf16 changes no gradient"},
      {{"--precision=fp8"}, "--precision=fp8: unknown precision 'fp8'"},
      {{"-m", "0"}, "-m 0 is not a whole number between 1 and 1000"},
      {{"-m", "2", "--update=momentum"}, "-m 2 has no use beside --update"},
      {{"--allreduce=ring"}, "--allreduce=ring: name strategies by --strategies, such as"},
      {{"--all_reduce_spec=xring"}, "--all_reduce_spec=xring: name strategies by --strategies"},
      {{"--hierarchical_copy"}, "--hierarchical_copy: write --strategies=hierarchical"},
      {{"-g", "8"}, "'-g' is no flag"}};
  for (const auto& [flags, why] : refusals) {
    const Finished done = run_built("allreduce_bench", flags);
    EXPECT_EQ(done.status, 2) << why;
    EXPECT_EQ(done.output, "") << why;
    EXPECT_THAT(done.errors, HasSubstr(why));
  }
}

TEST(AllreduceBench, TimesSeveralReductionsAtOnce) {
  const std::string json = temporary_path(".json");
  const Finished done = run_built("allreduce_bench", {"-b", "1K", "-e", "1K", "-n", "2", "-m", "5",
                                                      "--devices=cpu:2", "--json=" + json});
  EXPECT_EQ(done.status, 0) << done.errors;
  EXPECT_THAT(done.output, HasSubstr(" agg iters: 5 "));
  const auto records = nlohmann::json::parse(text_of_file(json));
  local_file_system().remove(json);
  for (const auto& record : records) {
    EXPECT_EQ(record["agg_iters"], 5);
    EXPECT_EQ(record["wrong"], 0);
  }
}

TEST(AllreduceBench, ListsOnOneDeviceWhatItRefusesThere) {
  const Finished done = run_built(
      "allreduce_bench", {"-b", "8", "-e", "8", "-n", "1", "--devices=cpu:1", "--strategies=all"});
  EXPECT_EQ(done.status, 0) << done.errors;
  EXPECT_THAT(done.output, HasSubstr("# hierarchical refused: "));
  EXPECT_THAT(done.output, HasSubstr("# nccl refused: "));
  const Finished named = run_built(
      "allreduce_bench",
      {"-b", "8", "-e", "8", "-n", "1", "--devices=cpu:1", "--strategies=collective,hierarchical"});
  EXPECT_EQ(named.status, 0) << named.errors;
  EXPECT_THAT(named.output, HasSubstr("# hierarchical refused: "));
  const Finished update =
      run_built("allreduce_bench", {"-b", "8", "-e", "8", "-n", "1", "--devices=cpu:1",
                                    "--strategies=all", "--update=momentum"});
  EXPECT_THAT(update.output, HasSubstr("# nccl refused: "));
}

TEST(AllreduceBench, ChoosesAsIfTheDevicesOfAFileWereThere) {
  const Finished done = run_built(
      "allreduce_bench", {"-b", "1K", "-e", "1K", "-n", "2", "--devices=cpu:8", "--strategies=auto",
                          cat("--links=", BELFRY_SOURCE_DIR, "/docs/links/dgx1.json")});
  EXPECT_EQ(done.status, 0) << done.errors;
  EXPECT_THAT(done.output, HasSubstr("\n# auto: "));
  EXPECT_THAT(done.output, HasSubstr("  auto -> "));
  const Finished missing =
      run_built("allreduce_bench", {"--strategies=auto", "--links=/nowhere/links.json"});
  EXPECT_EQ(missing.status, 2);
  EXPECT_THAT(missing.errors, HasSubstr("--links=/nowhere/links.json: "));
}

TEST(AllreduceBench, PutsNothingButTheFileOnStdout) {
  const Finished done = run_built(
      "allreduce_bench",
      {"-b", "8", "-e", "8", "-n", "1", "--json=/dev/stdout", "--strategies=halving-doubling"});
  EXPECT_EQ(done.status, 0) << done.errors;
  const auto records = nlohmann::json::parse(done.output);
  EXPECT_EQ(records.size(), 2u);
  EXPECT_EQ(records[0]["strategy"], "halving_doubling");
  EXPECT_THAT(done.errors, HasSubstr("# Avg bus bandwidth    : "));
}

// The second size does not fit into the limited address space.
TEST(AllreduceBench, KeepsWhatItMeasuredBeforeAnError) {
  if (kSanitized) GTEST_SKIP() << "sanitizers need the address space";
  const std::string json = temporary_path(".json"), csv = temporary_path(".csv");
  const Finished done = run_program(
      "sh",
      {"-c",
       cat("ulimit -v 700000; exec ", BELFRY_BIN_DIR,
           "/allreduce_bench -b 1K -e 128M -f 131072 -c 0 -n 1 --devices=cpu:4 --threads=2 --json=",
           json, " --csv=", csv)});
  EXPECT_EQ(done.status, 1) << done.errors;
  EXPECT_THAT(done.errors, HasSubstr("cannot allocate"));
  const auto records = nlohmann::json::parse(text_of_file(json));
  EXPECT_EQ(records.size(), 2u);
  EXPECT_EQ(records[0]["bytes"], 1024);
  EXPECT_THAT(text_of_file(csv), HasSubstr("\ncollective,true,4,1,cpu,f32,sum,1024,true,"));
  local_file_system().remove(json);
  local_file_system().remove(csv);
}

TEST(AllreduceBench, TimesTheUpdateInFourCells) {
  const std::string json = temporary_path(".update.json");
  const Finished done =
      run_built("allreduce_bench", {"-b", "4K", "-e", "4K", "-n", "3", "--devices=cpu:4",
                                    "--update=momentum", "--json=" + json});
  EXPECT_EQ(done.status, 0) << done.errors;
  const auto records = nlohmann::json::parse(text_of_file(json));
  local_file_system().remove(json);
  ASSERT_EQ(records.size(), 4u);
  for (std::size_t c = 0; c < 4; ++c) {
    EXPECT_EQ(records[c]["fuse_updates"], c % 2 == 1);
    EXPECT_EQ(records[c]["share_replicas"], c >= 2);
    EXPECT_EQ(records[c]["wrong"], 0);
    EXPECT_EQ(records[c]["in_place"], true);
    EXPECT_GT(records[c]["limit_us"].get<double>(), 0);
    EXPECT_DOUBLE_EQ(records[c]["busbw"].get<double>(), records[c]["algbw"].get<double>() * 1.5);
  }
}

// The weights are 784 * 512 + 512, 512 * 512 + 512 and 512 * 10 + 10 numbers of four bytes.
TEST(AllreduceBench, ReducesTheGradientsOfAModel) {
  const Finished done = run_built("allreduce_bench", {"--model=mlp", "-n", "2", "--devices=cpu:2"});
  EXPECT_EQ(done.status, 0) << done.errors;
  EXPECT_THAT(done.output, HasSubstr("# gradients of mlp\n"));
  EXPECT_THAT(done.output, HasSubstr("\n     2678824        669706     float"));
}

}  // namespace allreduce_bench_test
}  // namespace belfry
