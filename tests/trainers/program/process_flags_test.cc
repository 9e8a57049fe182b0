// Flags of several processes. If command lines differ, an error names the flag and both values.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "belfry/framework/base/text.h"
#include "belfry/tests/framework/framework_test_support.h"
#include "belfry/tests/support/process_threads.h"
#include "belfry/tests/trainers/program/parsed_flags.h"
#include "belfry/trainers/program/program_processes.h"

namespace belfry {
namespace process_flags_test {

using ::testing::HasSubstr;
using Arguments = std::vector<const char*>;

// The command line of one process. It has its own variable for the program's own flag.
class Line {
 public:
  explicit Line(Arguments more) {
    Arguments all{"--devices=cpu:1", "--trainer=replicated"};
    all.insert(all.end(), more.begin(), more.end());
    flags_ = parse(all, {.program = "test",
                         .own = {{.name = "dropout", .variable = &dropout_, .text = "a rate"}}});
    add_to_config(flags_, sgd(0.1));
  }
  const TrainFlags& flags() const { return flags_; }

 private:
  double dropout_ = 0;
  TrainFlags flags_;
};

// The error of both of two processes; "" for none.
std::string told(const Arguments& first, const Arguments& second) {
  std::vector<std::string> all(2);
  test::run_processes(2, [&](const std::shared_ptr<Processes>& processes) {
    try {
      const Line line(processes->rank() == 0 ? first : second);
      flags_in_group(line.flags(), processes);
    } catch (const Error& error) {
      all[static_cast<std::size_t>(processes->rank())] = error.what();
    }
  });
  EXPECT_EQ(all[0], all[1]);
  return all[0];
}

TEST(ProcessFlags, ThatDifferAreNamedWithBothValues) {
  const std::pair<const char*, const char*> all[] = {
      {"--seed=3", "--seed is 3 there, and 1 in rank 0"},
      {"--dropout=0.5", "--dropout is 0.5 there, and 0 in rank 0"},
      {"--trainer=async", "--trainer is async there, and replicated in rank 0"},
      {"--devices=cpu:2", "--devices is cpu:2 there, and cpu:1 in rank 0"},
      {"--allreduce=ring", "--allreduce is ring there, and collective in rank 0"},
      {"--bucket_mb=1", "--bucket_mb is 1 there, and 4 in rank 0"},
      {"--gradient_repacking=2", "--bucket_mb is 0 there, and 4 in rank 0"},
      {"--small_tensors_kb=4", "--small_tensors_kb is 4 there, and 0 in rank 0"},
      {"--fuse=0", "--fuse is 0 there, and 1 in rank 0"},
      {"--shards=4", "rank 0 lacks --shards, which is 4 there"},
      {"--batch_size=16", "(--batch_size, or --global_batch_size) is 16 there, and 32 in rank 0"},
      {"--global_batch_size=16", "or --global_batch_size) is 16 there, and 32 in rank 0"},
      {"--gradient_accumulation_steps=2", "--gradient_accumulation_steps is 2 there, and 1"},
      {"--uneven=weight", "--uneven is weight there, and drop in rank 0"},
      {"--learning_rate=0.5", "--learning_rate is 0.5 there, and 0.1 in rank 0"},
      {"--lr_schedule=cosine", "rank 0 lacks --lr_schedule, which is cosine there"},
      {"--warmup_steps=5", "--warmup_steps is 5 there, and 0 in rank 0"},
      {"--weight_decay=0.1", "--weight_decay is 0.1 there, and 0 in rank 0"},
      {"--group=fc0:rate=2", "rank 0 lacks --group, which is fc0:rate=2 there"},
      {"--clip_norm=1", "--clip_norm is 1 there, and 0 in rank 0"},
      {"--clip_value=1", "--clip_value is 1 there, and 0 in rank 0"},
      {"--optimizer=momentum", "--learning_rate is 0.01 there, and 0.1 in rank 0"},
      {"--weight_decay_form=decoupled", "rank 0 lacks --weight_decay_form, which is decoupled"},
      {"--moving_average=0.9", "rank 0 lacks --moving_average, which is 0.9 there"},
      {"--epochs=2", "--epochs is 2 there, and 1 in rank 0"},
      {"--max_steps=7", "--max_steps is 7 there, and 0 in rank 0"},
      {"--precision=bf16", "--precision is bf16 there, and f32 in rank 0"},
      {"--load=other", "rank 0 lacks --load, which is other there"},
      {"--resume=other", "--resume is other there, and auto in rank 0"},
      {"--run_dir=other", "rank 0 lacks --run_dir, which is other there"},
      {"--dry_run", "rank 0 lacks --dry_run, which is 1 there"},
      {"--summary", "rank 0 lacks --summary, which is 1 there"}};
  for (const auto& [flag, why] : all) {
    const std::string message = told({}, {flag});
    EXPECT_THAT(message, HasSubstr("rank 1 on ")) << flag;
    EXPECT_THAT(message, HasSubstr(why));
  }
  EXPECT_THAT(told({"--load=other"}, {}), HasSubstr("it lacks --load, which is other in rank 0"));
}

TEST(ProcessFlags, MayComeInAnyOrderAndSayWhatIsTheDefault) {
  EXPECT_EQ(told({"--seed=3", "--epochs=2"}, {"--epochs=2", "--seed=3"}), "");
  EXPECT_EQ(told({}, {"--seed=1", "--allreduce=collective", "--fuse=1", "--bucket_mb=4"}), "");
  EXPECT_EQ(told({"--global_batch_size=8"}, {"--batch_size=8"}), "");
}

TEST(ProcessFlags, MayWriteOneValueInSeveralWays) {
  EXPECT_EQ(told({"--group=fc0:rate=2.0,weight_decay=0;fc1:freeze"},
                 {"--group=fc0:weight_decay=0.0,rate=2", "--group=fc1:freeze"}),
            "");
  EXPECT_EQ(
      told({"--bucket_mb=2", "--weight_decay=1e-3"}, {"--bucket_mb=2.0", "--weight_decay=0.001"}),
      "");
}

TEST(ProcessFlags, OfFilesAndThreadsAreEachProcesssOwn) {
  EXPECT_EQ(told({}, {"--data_dir=elsewhere", "--threads=3", "--json=elsewhere"}), "");
}

TEST(Flags, TakeANumberOfProcessesForDryRunsAlone) {
  const TrainFlags flags =
      parse({"--dry_run", "--processes=128", "--devices=gpu:8", "--global_batch_size=2048"});
  EXPECT_EQ(flags.group.processes, 128);
  EXPECT_EQ(flags.trainer.batch_size, 2);
  EXPECT_EQ(parse({"--dry_run", "--processes=2", "--devices=cpu:1"}).kind, "replicated");
  EXPECT_EQ(parse({}).group.processes, 1);
  EXPECT_THAT(refusal({"--processes=4"}),
              HasSubstr("--processes=4 needs --dry_run, which plans one of so many; a run has the "
                        "processes that a launcher starts: mpirun -n 4, or belfry run -n 4"));
  EXPECT_THAT(refusal({"--dry_run", "--processes_per_host=2"}),
              HasSubstr("--processes_per_host=2 says how the processes of a plan lie; give "));
  EXPECT_THAT(refusal({"--dry_run", "--processes=0"}), HasSubstr("--processes=0"));
}

TEST(Flags, CountTheDevicesOfAllPlannedProcesses) {
  const auto with = [](const char* flag) {
    return std::vector<const char*>{"--dry_run", "--processes=2", "--devices=cpu:2", flag};
  };
  EXPECT_EQ(
      refusal(with("--shards=6")),
      "--shards=6 of the global batch cannot be divided among 4 devices alike; use a multiple "
      "of 4");
  EXPECT_EQ(refusal(with("--tower_weights=3,1")),
            "--tower_weights has 2 where there are 4 devices; give one weight for each");
  EXPECT_EQ(parse(with("--tower_weights=3,1,1,1")).trainer.batches.tower_weights.size(), 4u);
  EXPECT_EQ(parse(with("--zero_stage=1")).trainer.aggregation.zero_stage, 1);
}

TEST(Flags, SayWhichBatchDevicesOfProcessesCanShare) {
  const auto refused = [](std::vector<const char*> arguments) {
    arguments.insert(arguments.end(), {"--dry_run", "--processes=3", "--devices=cpu:1"});
    try {
      parse(arguments, {.program = "p", .global_batch_size = 128});
    } catch (const FlagError& error) {
      return std::string(error.what());
    }
    return std::string();
  };
  EXPECT_EQ(refused({}),
            "the program's --global_batch_size=128 cannot be divided among 3 devices alike (of 3 "
            "processes); give a multiple of 3, such as --global_batch_size=129");
  EXPECT_EQ(refused({"--global_batch_size=64"}),
            "--global_batch_size=64 cannot be divided among 3 devices alike (of 3 processes); use "
            "a multiple of 3");
}

// Started again by its configuration, a run of several processes has the same batch.
TEST(Flags, OfAConfigurationCountTheBatchesOfAllProcesses) {
  const auto batch_of = [](const char* batch) {
    return parse({"--dry_run", "--processes=2", "--devices=cpu:2", batch})
        .config.at("global_batch_size")
        .integer();
  };
  EXPECT_EQ(batch_of("--batch_size=8"), 32);
  EXPECT_EQ(batch_of("--global_batch_size=32"), 32);
}

// This is no error, as a run may resume with fewer processes.
TEST(Flags, OfUpdatesInPartsChangeNothingInOneProcess) {
  for (const char* flag : {"--partition_updates=1", "--zero_stage=1", "--zero_stage=0"})
    EXPECT_EQ(parse({flag, "--devices=cpu:2"}).trainer.aggregation.zero_stage, 0) << flag;
  EXPECT_THAT(refusal({"--zero_stage=2"}), HasSubstr("--zero_stage=2"));
}

}  // namespace process_flags_test
}  // namespace belfry
