// Runs the benchmark program peak_bench as people run it.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "belfry/framework/base/host_memory.h"
#include "belfry/framework/base/text.h"
#include "belfry/tests/support/programs.h"
#include "belfry/tests/support/sanitizers.h"

namespace belfry {
namespace peak_bench_test {

using testing::HasSubstr;

Finished bench(const std::vector<std::string>& arguments) {
  return run_program(cat(BELFRY_BIN_DIR, "/peak_bench"), arguments);
}

TEST(PeakBench, MeasuresCopiesAndProducts) {
  const Finished done = bench({"--devices=cpu:2", "-b", "1M", "--size=32", "--chain=3", "-n", "2",
                               "--precisions=bf16,f32", "--threads=3", "--json=-"});
  EXPECT_EQ(done.status, 0) << done.errors;
  EXPECT_THAT(done.errors, testing::ContainsRegex("copy +[0-9.]+ GB/s, read and written\nbf16 "));
  const auto report = nlohmann::json::parse(done.output);
  EXPECT_EQ(report["devices"], 2);
  EXPECT_EQ(report["device_type"], "cpu");
  EXPECT_EQ(report["size"], 32);
  EXPECT_EQ(report["threads"], 3);
  EXPECT_GT(report["copy_gbs"].get<double>(), 0);
  EXPECT_EQ(report["matmul_tflops"].size(), 2u);
  for (const char* precision : {"bf16", "f32"})
    EXPECT_GT(report["matmul_tflops"][precision].get<double>(), 0) << precision;
}

TEST(PeakBench, AsksNoMoreOfCpusThanTheyCanDoInSeconds) {
  const Finished done =
      bench({"--devices=cpu:1", "-b", "1M", "--chain=1", "-n", "1", "-w", "0", "--json=-"});
  EXPECT_EQ(done.status, 0) << done.errors;
  const auto report = nlohmann::json::parse(done.output);
  EXPECT_EQ(report["size"], 1024);
  EXPECT_EQ(report["matmul_tflops"].size(), 1u);
  EXPECT_TRUE(report["matmul_tflops"].contains("f32"));
}

TEST(PeakBench, SaysWhatItMeasuresUnlessToldOtherwise) {
  const std::string help = bench({"--help"}).output;
  EXPECT_THAT(help, HasSubstr("at most 1024 [gpu:1]"));
  EXPECT_THAT(help, HasSubstr("[8192; on CPUs 1024]"));
}

TEST(PeakBench, RefusesWhatItCannotMeasure) {
  const std::vector<std::pair<std::vector<std::string>, std::string>> refusals{
      {{"--devices=cpu:1", "--precisions=f32,fp8"}, "--precisions: unknown precision 'fp8'"},
      {{"--devices=cpu:1", "--precisions=f32,tf32"},
       "--precisions=f32,tf32: tf32 is how GPUs multiply f32, and CPU:0 is none; use f32"},
      {{"--devices=cpu:1", "-b", "0"}, "-b 0 leaves nothing to copy"},
      {{"--devices=cpu:1", "--size=0"}, "--size=0 is not a whole number between 1 and 32768"},
      {{"--devices=gpu:1000"}, "--devices: 'gpu:1000'"}};
  for (const auto& [flags, why] : refusals) {
    const Finished done = bench(flags);
    EXPECT_EQ(done.status, 2) << why;
    EXPECT_THAT(done.errors, HasSubstr(why));
  }
}

TEST(PeakBench, RefusesWhatTheMachineHasNoMemoryFor) {
  const std::string half = cat(host_memory() / 2);
  const std::vector<std::pair<std::vector<std::string>, std::string>> refusals{
      {{"--devices=cpu:1", "-b", "100T"}, "-b 100T on --devices=cpu:1 needs 100.00 TiB of memory"},
      {{"--devices=cpu:1024", "-b", "4000000T"}, "-b 4000000T on --devices=cpu:1024 needs "},
      {{"--devices=cpu:3", "--bytes=" + half}, cat("--bytes=", half, " on --devices=cpu:3 needs ")},
      {{"--devices=cpu:1024", "-b", "1K", "--size=32768"},
       "--size=32768 on --devices=cpu:1024 needs "}};
  for (const auto& [flags, why] : refusals) {
    const Finished done = bench(flags);
    EXPECT_EQ(done.status, 2) << why;
    EXPECT_THAT(done.errors, HasSubstr(why));
    EXPECT_EQ(done.output, "");
  }
}

// The matrices do not fit into the limited address space.
TEST(PeakBench, KeepsWhatItMeasuredBeforeAnError) {
  if (kSanitized) GTEST_SKIP() << "sanitizers need the address space";
  const Finished done = run_program(
      "sh", {"-c", cat("ulimit -v 700000; exec ", BELFRY_BIN_DIR,
                       "/peak_bench -b 1K -n 1 --devices=cpu:1 --threads=2 --size=8192 --json=-")});
  EXPECT_EQ(done.status, 1) << done.errors;
  EXPECT_THAT(done.errors, HasSubstr("error: --size=8192: "));
  const auto report = nlohmann::json::parse(done.output);
  EXPECT_GT(report["copy_gbs"].get<double>(), 0);
  EXPECT_TRUE(report["matmul_tflops"].empty());
}

}  // namespace peak_bench_test
}  // namespace belfry
