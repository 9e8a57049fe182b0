#include "belfry/trainers/program/flags.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "belfry/framework/base/text.h"
#include "belfry/tests/trainers/program/parsed_flags.h"
#include "belfry/trainers/flags/device_flag.h"
#include "belfry/trainers/flags/flag_parser.h"

namespace belfry {
namespace flags_test {

using testing::AllOf;
using testing::HasSubstr;

TEST(Flags, HaveTheDefaultsOfTheIssueAndOfTheRecipe) {
  const TrainFlags flags =
      parse({}, {.program = "p", .batch_size = 64, .epochs = 3, .reads_files = true});
  EXPECT_EQ(flags.trainer.devices.size(), 2u);
  EXPECT_EQ(flags.kind, "replicated");
  EXPECT_EQ(flags.trainer.aggregation.allreduce, "collective");
  EXPECT_EQ(flags.trainer.aggregation.gradient_repacking, 0);
  EXPECT_EQ(flags.trainer.aggregation.small_tensors_kb, 0);
  EXPECT_EQ(flags.trainer.aggregation.bucket_mb, kDefaultBucketMb);
  EXPECT_EQ(flags.trainer.batch_size, 64);
  EXPECT_EQ(flags.trainer.epochs, 3);
  EXPECT_EQ(flags.trainer.max_steps, 0);
  EXPECT_EQ(flags.trainer.seed, 1u);
  EXPECT_FALSE(flags.optimizer.learning_rate);
  EXPECT_EQ(flags.files.data_dir, "");
  EXPECT_EQ(flags.trainer.session.threads, 0);
  EXPECT_FALSE(flags.trainer.session.log_device_placement);
  EXPECT_EQ(flags.files.json, "");
  EXPECT_EQ(flags.help, "");
}

TEST(Flags, DivideTheGlobalBatchOfTheRecipeAmongAnyDevices) {
  const FlagDefaults defaults{.program = "p", .batch_size = 7, .global_batch_size = 12};
  EXPECT_EQ(parse({"--devices=cpu:1"}, defaults).trainer.batch_size, 12);
  EXPECT_EQ(parse({"--devices=cpu:4"}, defaults).trainer.batch_size, 3);
  EXPECT_EQ(parse({"--devices=cpu:4", "--batch_size=2"}, defaults).trainer.batch_size, 2);
  EXPECT_EQ(parse({"--devices=cpu:4", "--global_batch_size=4"}, defaults).trainer.batch_size, 1);
  try {
    parse({"--devices=cpu:5"}, defaults);
    FAIL();
  } catch (const FlagError& error) {
    EXPECT_THAT(
        error.what(),
        HasSubstr("the program's --global_batch_size=12 cannot be divided "
                  "among 5 devices alike; give a multiple of 5, such as --global_batch_size=15"));
  }
  EXPECT_THAT(parse({"--help"}, defaults).help, HasSubstr("each [12]"));
}

TEST(Flags, SayHowDataAreRead) {
  const TrainFlags flags = parse({"--data_workers=3", "--bad_records=skip:7"});
  EXPECT_EQ(flags.trainer.data_workers, 3);
  EXPECT_EQ(flags.files.bad_records, BadRecordPolicy{.most = 7});
  EXPECT_EQ(parse({}).files.bad_records, BadRecordPolicy{});
  EXPECT_EQ(parse({"--bad_records=stop"}).files.bad_records, BadRecordPolicy{});
  EXPECT_THAT(refusal({"--bad_records=skip:0"}),
              HasSubstr("--bad_records=skip:0: 'skip:0' is neither stop nor skip:N"));
  EXPECT_EQ(parse({"--data_workers=0"}).trainer.data_workers, 0);
  EXPECT_THAT(refusal({"--data_workers=-1"}), HasSubstr("--data_workers=-1"));
}

TEST(Flags, ReadEveryValue) {
  const TrainFlags flags =
      parse({"--devices=cpu:4", "--trainer=replicated", "--allreduce=naive",
             "--gradient_repacking=4", "--batch_size=16", "--epochs=7", "--max_steps=100",
             "--seed=18446744073709551615", "--learning_rate=2.5e-3", "--data_dir=/data",
             "--threads=3", "--log_device_placement", "--json=out=1.json"});
  EXPECT_EQ(flags.trainer.devices.size(), 4u);
  EXPECT_EQ(flags.trainer.aggregation.allreduce, "naive");
  EXPECT_EQ(flags.trainer.aggregation.gradient_repacking, 4);
  EXPECT_EQ(flags.trainer.batch_size, 16);
  EXPECT_EQ(flags.trainer.epochs, 7);
  EXPECT_EQ(flags.trainer.max_steps, 100);
  EXPECT_EQ(flags.trainer.seed, 18446744073709551615u);
  EXPECT_EQ(flags.optimizer.learning_rate, 2.5e-3);
  EXPECT_EQ(flags.files.data_dir, "/data");
  EXPECT_EQ(flags.trainer.session.threads, 3);
  EXPECT_TRUE(flags.trainer.session.log_device_placement);
  EXPECT_EQ(flags.files.json, "out=1.json");
}

TEST(Flags, ReadWhatInspectsAndWhatSaves) {
  const TrainFlags saving = parse({"--trace_file=t.json", "--run_dir=a/b", "--memory-report", "c"});
  EXPECT_EQ(saving.files.trace_file, "t.json");
  EXPECT_EQ(saving.run.directory, "a/b");
  EXPECT_EQ(saving.files.memory_report, "c");
  EXPECT_FALSE(saving.inspection.dry_run);
  const TrainFlags inspecting = parse({"--dry_run", "--explain=tower0/fc/W"});
  EXPECT_TRUE(inspecting.inspection.dry_run);
  EXPECT_EQ(inspecting.inspection.explain, "tower0/fc/W");
}

TEST(Flags, RefuseFilesThatNothingWouldBeWrittenTo) {
  EXPECT_EQ(parse({"--dry_run", "--memory_report=m"}).files.memory_report, "m");
  EXPECT_THAT(refusal({"--explain=n", "--memory_report=m"}),
              AllOf(HasSubstr("--memory_report=m"), HasSubstr("--explain")));
  EXPECT_THAT(refusal({"--check_equivalence=2", "--memory_report=m"}),
              AllOf(HasSubstr("--memory_report=m"), HasSubstr("--check_equivalence")));
  EXPECT_THAT(refusal({"--dry_run", "--trace_file=t"}),
              AllOf(HasSubstr("--trace_file=t"), HasSubstr("--dry_run")));
  EXPECT_THAT(refusal({"--explain=x", "--run_dir=c"}),
              AllOf(HasSubstr("--run_dir=c"), HasSubstr("--explain")));
  EXPECT_THAT(refusal({"--dry_run", "--resume=c"}), HasSubstr("--resume=c"));
}

TEST(Flags, CheckEquivalenceOfAllModesInsteadOfTraining) {
  EXPECT_EQ(parse({}).inspection.check_equivalence, 0);
  EXPECT_EQ(parse({"--check_equivalence=5", "--devices=cpu:4"}).inspection.check_equivalence, 5);
  EXPECT_THAT(refusal({"--check_equivalence=0"}), HasSubstr("--check_equivalence=0"));
  for (const char* other :
       {"--run_dir=c", "--resume=c", "--trace_file=t", "--dry_run", "--explain=x",
        "--log_device_placement", "--trainer=replicated", "--allreduce=naive",
        "--gradient_repacking=2", "--small_tensors_kb=4", "--bucket_mb=1", "--fuse=0",
        "--share_replicas=0", "--async=free", "--epochs=2", "--max_steps=3"}) {
    const std::string flag = std::string(other).substr(0, std::string_view(other).find('='));
    EXPECT_THAT(refusal({"--check_equivalence=5", other}),
                AllOf(HasSubstr(flag), HasSubstr("--check_equivalence")))
        << other;
  }
  EXPECT_EQ(parse({"--check_equivalence=5", "--json=f"}).files.json, "f");
}

TEST(TrainFlagSet, AddsTheFlagsOfTrainingToThoseOfABenchmark) {
  FlagParser parser("Benchmarks.", "bench");
  std::string model = "mlp";
  parser.group("Benchmark");
  parser.add("--model", model, "NAME", "to train");
  const TrainFlagSet set(parser, {.program = "bench", .benchmark = true});
  const char* const arguments[] = {"--model=x", "--devices=cpu:4", "--allreduce=naive", "--seed=7"};
  EXPECT_EQ(parser.parse(arguments), "");
  EXPECT_EQ(model, "x");
  EXPECT_TRUE(parser.given("--seed"));
  EXPECT_FALSE(parser.given("--threads"));
  const TrainFlags flags = set.read(96);
  EXPECT_EQ(flags.trainer.devices.size(), 4u);
  EXPECT_EQ(flags.trainer.aggregation.allreduce, "naive");
  EXPECT_EQ(flags.trainer.seed, 7u);
  EXPECT_EQ(flags.trainer.batch_size, 96);
}

TEST(TrainFlagSet, LeavesBenchmarksWithoutFlagsOfEpochsAndFiles) {
  FlagParser parser("Benchmarks.", "bench");
  const TrainFlagSet set(parser, {.program = "bench", .benchmark = true});
  const char* const help[] = {"--help"};
  const std::string text = parser.parse(help);
  for (const char* flag : {"--batch_size", "--learning_rate", "--dry_run", "--check_equivalence",
                           "--threads", "--json", "--trace_file", "[the model's]"})
    EXPECT_THAT(text, HasSubstr(flag));
  for (const char* flag : {"--epochs", "--max_steps", "--data_dir", "--resume", "--explain"})
    EXPECT_THAT(text, testing::Not(HasSubstr(flag)));
}

TEST(Flags, DivideTheGlobalBatchAndItsShards) {
  const TrainFlags flags = parse({"--devices=cpu:4", "--global_batch_size=64", "--shards=8"});
  EXPECT_EQ(flags.trainer.batch_size, 16);
  EXPECT_EQ(flags.trainer.shards, 8);
  EXPECT_THAT(refusal({"--devices=cpu:4", "--global_batch_size=66"}),
              HasSubstr("--global_batch_size=66 cannot be divided among 4 devices"));
  EXPECT_THAT(refusal({"--global_batch_size=64", "--batch_size=8"}),
              AllOf(HasSubstr("--global_batch_size=64"), HasSubstr("--batch_size=8")));
  EXPECT_THAT(refusal({"--devices=cpu:2", "--shards=3"}),
              HasSubstr("--shards=3 of the global batch cannot be divided among 2 devices"));
  EXPECT_THAT(refusal({"--devices=cpu:2", "--batch_size=8", "--shards=18"}),
              HasSubstr("--shards=18 is more than the 16 samples of a global batch"));
  EXPECT_THAT(refusal({"--devices=cpu:4", "--trainer=async", "--async=free", "--shards=2"}),
              HasSubstr("--shards=2: devices on GPUs, and towers that run free, have one shard"));
}

TEST(Flags, TakeGpusThatDoNotExistForDryRuns) {
  const TrainFlags flags = parse({"--dry_run", "--devices=gpu:8"});
  EXPECT_EQ(flags.trainer.devices.size(), 8u);
  EXPECT_EQ(flags.trainer.devices[7].str(), "/job:localhost/replica:0/task:0/device:GPU:7");
  EXPECT_EQ(flags.trainer.session.logical_gpus, 1);
  EXPECT_EQ(parse({"--dry_run", "--devices=/cpu:0,/gpu:1"}).trainer.devices.size(), 2u);
  EXPECT_EQ(parse({"--explain=x", "--devices=gpu:8"}).trainer.devices, flags.trainer.devices);
  EXPECT_EQ(
      parse({"--explain=x", "--devices=gpu:8", "--logical-gpus=4"}).trainer.session.logical_gpus,
      4);
  for (const char* devices : {"--devices=gpu:998", "--devices=/gpu:997", "--devices=gpu:0,gpu:997"})
    EXPECT_THAT(refusal({devices}), HasSubstr("--dry_run"));
  EXPECT_THAT(refusal({"--check_equivalence=2", "--devices=gpu:998"}), HasSubstr("--dry_run"));
  EXPECT_THAT(refusal({"--dry_run", "--devices=tpu:8"}), HasSubstr("no TPU devices"));
  EXPECT_THAT(refusal({"--dry_run", "--devices=/cpu:1000,/gpu:30"}),
              HasSubstr("1001 CPU and 31 GPU devices"));
}

TEST(Flags, TakeDashesForUnderscoresInNamesOnly) {
  EXPECT_EQ(parse({"--batch-size=8"}).trainer.batch_size, 8);
  EXPECT_EQ(parse({"--batch_size", "8"}).trainer.batch_size, 8);
  EXPECT_EQ(parse({"--data-dir", "a-b"}).files.data_dir, "a-b");
  EXPECT_TRUE(parse({"--log-device-placement"}).trainer.session.log_device_placement);
  EXPECT_THAT(refusal({"--batchsize=8"}), HasSubstr("unknown flag"));
}

TEST(Flags, TakeTheLastOfSeveralValues) {
  EXPECT_EQ(parse({"--seed=3", "--seed=5"}).trainer.seed, 5u);
}

// For launchers, and for the name of the file that has the flag.
TEST(Flags, ThatContradictOthersAreFieldsOfTheError) {
  const std::pair<std::vector<const char*>, const char*> all[] = {
      {{"--trainer=simple", "--devices=cpu:2"}, "trainer"},
      {{"--trainer=async", "--allreduce=ring"}, "allreduce"},
      {{"--batch_size=8", "--global_batch_size=16"}, "global_batch_size"},
      {{"--keep=2"}, "keep"},
      {{"--overwrite"}, "overwrite"},
      {{"--load_weights=raw"}, "load_weights"},
      {{"--moving_average_warmup"}, "moving_average_warmup"},
      {{"--processes=2"}, "processes"},
      {{"--dry_run", "--run_dir=r"}, "run_dir"},
      {{"--check_equivalence=2", "--max_steps=3"}, "max_steps"}};
  for (const auto& [arguments, option] : all) try {
      parse(arguments);
      ADD_FAILURE() << option << " was taken";
    } catch (const FlagError& error) {
      EXPECT_EQ(error.fields().option, option) << error.what();
    }
}

TEST(Flags, ReadSwitchesInWords) {
  for (const char* on :
       {"--dry_run", "--dry_run=true", "--dry-run=1", "--dry_run=Yes", "--dry_run=ON"})
    EXPECT_TRUE(parse({on}).inspection.dry_run) << on;
  for (const char* off : {"--dry_run=false", "--dry_run=0", "--nodry_run", "--no-dry-run"})
    EXPECT_FALSE(parse({"--dry_run", off}).inspection.dry_run) << off;
  EXPECT_FALSE(parse({"--share_replicas=false"}).trainer.session.share_replicas);
  EXPECT_THAT(refusal({"--nodry_run=1"}), HasSubstr("unknown flag --nodry_run"));
  EXPECT_THAT(refusal({"--noepochs"}), HasSubstr("unknown flag --noepochs"));
}

TEST(Flags, OneLimitIsForProcessesAndForNccl) {
  for (const char* name : {"--stall_abort_seconds"}) {
    const TrainFlags flags = parse({name, "0.5"});
    EXPECT_EQ(flags.group.watch.stall_end, std::chrono::milliseconds(500));
    EXPECT_EQ(flags.trainer.session.stall_abort_seconds, 0.5);
  }
  // 0 means no limit.
  EXPECT_EQ(parse({"--stall_abort_seconds=0"}).group.watch.stall_end.count(), 0);
  EXPECT_GT(parse({"--stall_abort_seconds=0"}).trainer.session.stall_abort_seconds, 1e8);
  EXPECT_EQ(parse({}).group.stall_exit_code, 75);
  EXPECT_EQ(parse({"--stall_exit_code=3"}).group.stall_exit_code, 3);
  EXPECT_THAT(refusal({"--stall_exit_code=256"}), HasSubstr("--stall_exit_code=256"));
}

TEST(Flags, SayHowProcessesMeet) {
  const TrainFlags flags = parse({"--meeting_timeout_s=0.5", "--insecure"});
  EXPECT_EQ(flags.group.launcher.tcp.timeout, std::chrono::milliseconds(500));
  EXPECT_TRUE(flags.group.launcher.tcp.insecure);
  EXPECT_EQ(parse({}).group.launcher.tcp.timeout, std::chrono::minutes(5));
  EXPECT_FALSE(parse({}).group.launcher.tcp.insecure);
  EXPECT_THAT(refusal({"--meeting_timeout_s=0"}), HasSubstr("is not a number above 0"));
}

TEST(Flags, SayAfterHowManySecondsOfSilenceAProcessIsLost) {
  const auto silence = [](const char* argument) {
    const WatchOptions watch = parse({argument}).group.watch;
    return watch.beat * watch.most_silent;
  };
  EXPECT_EQ(silence("--stall_exit_code=75"), std::chrono::seconds(5));  // the default
  EXPECT_EQ(silence("--lost_after_seconds=30"), std::chrono::seconds(30));
  EXPECT_EQ(silence("--lost_after_seconds=1.6"), std::chrono::seconds(2));  // whole beats
  EXPECT_EQ(silence("--lost_after_seconds=0").count(), 0);                  // never
  EXPECT_GT(silence("--lost_after_seconds=1e300"), std::chrono::hours(24));
  for (const char* wrong : {"0.5", "-1", "nan"})
    EXPECT_THAT(refusal({"--lost_after_seconds", wrong}), HasSubstr("--lost_after_seconds"))
        << wrong;
}

TEST(Flags, TakeWeightDecayAndTheLargestNorm) {
  EXPECT_FALSE(parse({}).optimizer.weight_decay);
  EXPECT_EQ(parse({}).trainer.clip_norm, 0);
  EXPECT_EQ(parse({"--weight_decay=0"}).optimizer.weight_decay, 0.0);
  const TrainFlags flags = parse({"--weight-decay=0.25", "--clip_norm=0.5"});
  EXPECT_EQ(flags.optimizer.weight_decay, 0.25);
  EXPECT_EQ(flags.trainer.clip_norm, 0.5);
  ASSERT_TRUE(flags.config.find("weight_decay") && flags.config.find("clip_norm"));
  EXPECT_EQ(flags.config.find("weight_decay")->str(), "0.25");
  EXPECT_EQ(flags.config.find("clip_norm")->str(), "0.5");
  for (const char* argument : {"--weight_decay=inf", "--weight_decay=-1", "--clip_norm=nan"})
    EXPECT_THAT(refusal({argument}), HasSubstr("is not a finite number >= 0")) << argument;
  EXPECT_THAT(refusal({"--clip_norm=1", "--trainer=async"}),
              AllOf(HasSubstr("--clip_norm=1"), HasSubstr("the trainer async combines none")));
  EXPECT_EQ(parse({"--clip_value=0.5"}).trainer.clip_value, 0.5);
  EXPECT_THAT(refusal({"--clip_value=1", "--trainer=async"}),
              AllOf(HasSubstr("--clip_value=1"), HasSubstr("the trainer async combines none")));
  EXPECT_THAT(refusal({"--clip_value=-1"}), HasSubstr("is not a finite number >= 0"));
}

TEST(Flags, JoinTheGroupsOfVariablesInTheirOrder) {
  EXPECT_TRUE(parse({}).optimizer.groups.empty());
  const TrainFlags flags =
      parse({"--group=head:rate=10", "--group", "fc*:weight_decay=0;conv*:freeze"});
  EXPECT_EQ(text_of_groups(flags.optimizer.groups), "head:rate=10;fc*:weight_decay=0;conv*:freeze");
  EXPECT_EQ(flags.config.find("group")->text(), "head:rate=10;fc*:weight_decay=0;conv*:freeze");
  const VariableGroup of_program =
      with_flags(sgd(0.1).with_groups(parse_groups("x:rate=2")), flags.optimizer).groups()[3];
  EXPECT_EQ(of_program.str(), "x:rate=2");
  EXPECT_TRUE(of_program.may_be_empty) << "as flags may name all its variables";
  EXPECT_EQ(refusal({"--group=head:rate=10", "--group=fc"}),
            "--group=head:rate=10 --group=fc: 'fc' is no group; write PATTERN:SETTING,..., e.g. "
            "head*:rate=10 or conv*:freeze");
}

TEST(Flags, LeaveOutDataDirForProgramsWithoutFiles) {
  EXPECT_THROW(parse({"--data_dir=/d"}, {.program = "p", .reads_files = false}), FlagError);
  EXPECT_THAT(parse({"--help"}, {.program = "p", .reads_files = false}).help,
              testing::Not(HasSubstr("data_dir")));
}

TEST(Flags, PrintHelpOfAtMostHundredColumns) {
  const std::string help = parse({"--help"}).help;
  for (const std::string_view line : split(help, '\n'))
    EXPECT_TRUE(line.size() <= 100 || line.find(' ', line.find_first_not_of(' ')) == line.npos)
        << line;
  EXPECT_THAT(without_breaks(help), HasSubstr("at most 256"));
}

TEST(Flags, PrintHelpInGroupsWithUnitsAndDefaults) {
  for (const char* spelling : {"--help", "-h"}) {
    const std::string help =
        without_breaks(parse({spelling}, {.program = "p", .batch_size = 48, .epochs = 9}).help);
    for (const char* part : {"Devices and gradients",
                             "Training",
                             "Data",
                             "Execution and output",
                             "Runs",
                             "--run_dir",
                             "--overwrite",
                             "Inspection",
                             "--dry_run",
                             "--check_equivalence",
                             "--explain",
                             "--memory_report",
                             "--trace_file",
                             "--devices",
                             "--logical_gpus",
                             "[all GPUs, else cpu:1]",
                             "--trainer",
                             "replicated (a copy",
                             "--allreduce",
                             "halving_doubling",
                             "NAME:SIZE:NAME",
                             "What auto chooses by",
                             "--links",
                             "--auto_any",
                             "--gradient_repacking",
                             "--small_tensors_kb",
                             "KiB",
                             "--bucket_mb",
                             "--batch_size",
                             "per device and step [48]",
                             "[9]",
                             "--max_steps",
                             "--learning_rate",
                             "--lr_schedule",
                             "cosine:TO@UNTIL",
                             "--warmup_steps",
                             "--optimizer",
                             "--beta1",
                             "--weight_decay",
                             "--clip_norm",
                             "--clip_value",
                             "--moving_average",
                             "--early_stop",
                             "--on_nonfinite",
                             "--seed",
                             "--data_dir",
                             "--threads",
                             "--log_device_placement",
                             "--json"})
      EXPECT_THAT(help, HasSubstr(part)) << part;
  }
}

TEST(Flags, ReadSeveralBatchesPerStep) {
  EXPECT_EQ(parse({}).trainer.batches.gradient_accumulation_steps, 1);
  EXPECT_EQ(parse({"--gradient_accumulation_steps=4"}).trainer.batches.gradient_accumulation_steps,
            4);
  EXPECT_THAT(refusal({"--gradient_accumulation_steps=4", "--trainer=async"}),
              AllOf(HasSubstr("--gradient_accumulation_steps=4"), HasSubstr("combines none")));
  EXPECT_THAT(refusal({"--gradient_accumulation_steps=4", "--precision=f16"}),
              HasSubstr("use bf16"));
  EXPECT_THAT(refusal({"--gradient_accumulation_steps=0"}), HasSubstr("between 1 and"));
  for (const char* uneven : {"--uneven=pad", "--uneven=weight"})
    EXPECT_EQ(refusal({"--gradient_accumulation_steps=4", uneven}),
              cat("--gradient_accumulation_steps=4 takes the mean over batches of one size, and ",
                  uneven, " makes a smaller last one; use --uneven=drop or --uneven=error"));
  for (const char* const planned : {"--dry_run=0", "--dry_run"})
    EXPECT_THAT(
        refusal({"--gradient_accumulation_steps=2147483647", "--batch_size=1000000", planned}),
        AllOf(HasSubstr("--gradient_accumulation_steps=2147483647: a step takes"),
              HasSubstr("more than the ")));
}

TEST(Flags, ReadWhatToWatch) {
  EXPECT_FALSE(parse({}).trainer.log_gradient_norms);
  EXPECT_TRUE(parse({"--log_gradient_norms"}).trainer.log_gradient_norms);
  EXPECT_THAT(refusal({"--log_gradient_norms", "--trainer=async"}),
              AllOf(HasSubstr("--log_gradient_norms is about combined gradients"),
                    HasSubstr("combines none")));
  const TrainFlags flags =
      parse({"--run_dir=r", "--histograms_every=5", "--histograms=*/W,gradients/fc*"});
  EXPECT_EQ(flags.run.histograms, (std::vector<std::string>{"*/W", "gradients/fc*"}));
  const TrainerOptions options = trainer_options(flags, {}, sgd(0.1));
  EXPECT_EQ(options.histograms.every, 5);
  EXPECT_EQ(options.histograms.patterns, flags.run.histograms);
  EXPECT_THAT(refusal({"--run_dir=r", "--histograms=gradients"}),
              HasSubstr("--histograms=gradients has no use without --histograms_every=N"));
  EXPECT_THAT(refusal({"--run_dir=r", "--histograms_every=5", "--histograms=a,,b"}),
              HasSubstr("--histograms=a,,b: a pattern is missing beside a comma; write */W"));
}

TEST(Flags, ReadScopesToRecompute) {
  EXPECT_TRUE(parse({}).trainer.recompute.empty());
  EXPECT_EQ(parse({"--recompute=group*/block*,stem"}).trainer.recompute,
            (std::vector<std::string>{"group*/block*", "stem"}));
  for (const char* argument : {"--recompute=a,,b", "--recompute=/a", "--recompute=,"})
    EXPECT_THAT(refusal({argument}),
                AllOf(HasSubstr("is no name scope; write names with one comma"),
                      HasSubstr("such as fc0,block*")))
        << argument;
}

TEST(Flags, ReadSchedulesOfTheRate) {
  const TrainFlags none = parse({});
  EXPECT_FALSE(none.optimizer.lr_schedule);
  EXPECT_EQ(none.optimizer.warmup_steps, 0);
  const TrainFlags given = parse({"--lr-schedule", "step:30,60@0.5", "--warmup_steps=500"});
  EXPECT_EQ(given.optimizer.lr_schedule->str(), "step:30,60@0.5");
  EXPECT_EQ(given.optimizer.warmup_steps, 500);
  EXPECT_THAT(refusal({"--lr_schedule=cosine:0@9O"}),
              AllOf(HasSubstr("--lr_schedule=cosine:0@9O"), HasSubstr("'9O' is no time")));
  EXPECT_THAT(refusal({"--lr_schedule=steps:30"}), HasSubstr("did you mean 'step'?"));
}

TEST(Flags, ReadWhatEndsATrainingAndWhatIsAveraged) {
  EXPECT_FALSE(parse({}).early_stop);
  EXPECT_FALSE(parse({}).optimizer.moving_average);
  EXPECT_EQ(parse({"--early_stop=validation_loss:min:3:0.1"}).early_stop->str(),
            "validation_loss:min:3:0.1");
  EXPECT_EQ(parse({"--moving_average=0.99"}).optimizer.moving_average, 0.99);
  EXPECT_THAT(refusal({"--early_stop=loss:low:3"}),
              AllOf(HasSubstr("--early_stop=loss:low:3"), HasSubstr("'low' is neither min")));
  EXPECT_THAT(refusal({"--moving_average=1"}), HasSubstr("below 1"));
  EXPECT_FALSE(parse({"--moving_average=0.9"}).optimizer.moving_average_warmup);
  EXPECT_TRUE(
      parse({"--moving_average=0.9", "--moving_average_warmup"}).optimizer.moving_average_warmup);
  EXPECT_THAT(refusal({"--moving_average_warmup"}),
              HasSubstr("--moving_average_warmup is about --moving_average; name that, too"));
  EXPECT_THAT(refusal({"--check_equivalence=2", "--early_stop=loss:min:1"}),
              AllOf(HasSubstr("--early_stop=loss:min:1"), HasSubstr("--check_equivalence=2")));
}

TEST(Flags, ReadWhenToEvaluate) {
  const TrainFlags none = parse({});
  EXPECT_EQ(none.evaluation.every_epochs, 1);
  EXPECT_EQ(none.evaluation.every_steps, 0);
  EXPECT_EQ(none.evaluation.batches, 0);
  EXPECT_FALSE(none.trainer.evaluates_only);
  const TrainFlags given =
      parse({"--eval_every_epochs=0", "--eval_every_steps=100", "--eval_batches=7"});
  EXPECT_EQ(given.evaluation.every_epochs, 0);
  EXPECT_EQ(given.evaluation.every_steps, 100);
  EXPECT_EQ(given.evaluation.batches, 7);
  EXPECT_TRUE(parse({"--evaluate_only", "--load=model"}).trainer.evaluates_only);
  EXPECT_TRUE(parse({"--evaluate_only", "--resume=model"}).trainer.evaluates_only);
  EXPECT_THAT(refusal({"--eval_every_steps=-1"}), HasSubstr("--eval_every_steps=-1"));
  EXPECT_THAT(refusal({"--evaluate_only"}), HasSubstr("name a run directory or a checkpoint by"));
  EXPECT_THAT(refusal({"--evaluate_only", "--run_dir=here"}), HasSubstr("by --load=here instead"));
  EXPECT_THAT(refusal({"--evaluate_only", "--load=model", "--dry_run"}), HasSubstr("--dry_run"));
  EXPECT_THAT(refusal({"--evaluate_only", "--load=model", "--check_equivalence=2"}),
              HasSubstr("--evaluate_only has no use beside --check_equivalence=2"));
}

TEST(Flags, ReadWhatALossThatIsNotFiniteEnds) {
  EXPECT_EQ(parse({}).trainer.on_nonfinite, OnNonfinite::kStop);
  EXPECT_EQ(parse({"--on_nonfinite=continue"}).trainer.on_nonfinite, OnNonfinite::kContinue);
  EXPECT_EQ(refusal({"--on_nonfinite=go"}),
            "--on_nonfinite=go is none of stop, skip, restore, continue");
  EXPECT_EQ(parse({"--on_nonfinite=skip"}).trainer.on_nonfinite, OnNonfinite::kSkip);
  const TrainFlags restores =
      parse({"--on_nonfinite=restore", "--on_nonfinite_restores=7", "--run_dir=here"});
  EXPECT_EQ(restores.trainer.on_nonfinite, OnNonfinite::kRestore);
  EXPECT_EQ(restores.trainer.on_nonfinite_restores, 7);
  EXPECT_THAT(refusal({"--on_nonfinite=restore"}),
              HasSubstr("--on_nonfinite=restore takes variables from the newest checkpoint of the "
                        "run; name a directory for them (--run_dir)"));
  EXPECT_THAT(
      refusal({"--on_nonfinite=skip", "--devices=cpu:2", "--trainer=async", "--async=free"}),
      HasSubstr("towers do not wait to hear whether all gradients are finite"));
}

TEST(Flags, ReadHowBatchesAreDivided) {
  const TrainFlags none = parse({});
  EXPECT_EQ(none.trainer.batches.uneven, Uneven::kDrop);
  EXPECT_TRUE(none.trainer.batches.tower_weights.empty());
  const TrainFlags given =
      parse({"--devices=cpu:3", "--uneven=weight", "--tower-weights=2,1.5,0.25"});
  EXPECT_EQ(given.trainer.batches.uneven, Uneven::kWeight);
  EXPECT_EQ(given.trainer.batches.tower_weights, (std::vector<double>{2, 1.5, 0.25}));
  for (const char* trainer : {"--trainer=replicated", "--trainer=parameter_server"})
    EXPECT_EQ(parse({trainer, "--uneven=pad", "--tower_weights=2,1"}).trainer.batches.uneven,
              Uneven::kPad);
  EXPECT_EQ(parse({"--devices=cpu:1", "--uneven=weight"}).trainer.batches.uneven, Uneven::kWeight);
}

}  // namespace flags_test
}  // namespace belfry
