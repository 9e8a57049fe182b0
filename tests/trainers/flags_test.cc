#include "belfry/trainers/flags.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "belfry/trainers/device_flag.h"
#include "belfry/trainers/flag_parser.h"
#include "belfry/trainers/flags_impl.h"

namespace belfry {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::StartsWith;

TrainFlags parse(std::vector<const char*> arguments, FlagDefaults defaults = {.program = "test"}) {
  return parse_flags(arguments, defaults);
}

std::string refusal(std::vector<const char*> arguments) {
  try {
    parse(std::move(arguments));
  } catch (const FlagError& error) {
    return error.what();
  }
  return "(accepted)";
}

std::vector<std::string> names(std::string_view devices) {
  std::vector<std::string> result;
  for (const DeviceSpec& device : parse_devices(devices)) result.push_back(device.str());
  return result;
}

std::string device_refusal(std::string_view devices) {
  try {
    parse_devices(devices);
  } catch (const FlagError& error) {
    return error.what();
  }
  return "(accepted)";
}

std::string cpu(int index) {
  return "/job:localhost/replica:0/task:0/device:CPU:" + std::to_string(index);
}

TEST(Flags, HaveTheDefaultsOfTheIssueAndOfTheRecipe) {
  const TrainFlags flags =
      parse({}, {.program = "p", .batch_size = 64, .epochs = 3, .reads_files = true});
  EXPECT_EQ(flags.devices.size(), 2u);
  EXPECT_EQ(flags.trainer, "replicated");
  EXPECT_EQ(flags.allreduce, "collective");
  EXPECT_EQ(flags.gradient_repacking, 0);
  EXPECT_EQ(flags.small_tensors_kb, 0);
  EXPECT_EQ(flags.bucket_mb, kDefaultBucketMb);
  EXPECT_EQ(flags.batch_size, 64);
  EXPECT_EQ(flags.epochs, 3);
  EXPECT_EQ(flags.max_steps, 0);
  EXPECT_EQ(flags.seed, 1u);
  EXPECT_FALSE(flags.learning_rate);
  EXPECT_EQ(flags.data_dir, "");
  EXPECT_EQ(flags.threads, 0);
  EXPECT_FALSE(flags.log_device_placement);
  EXPECT_EQ(flags.json, "");
  EXPECT_EQ(flags.help, "");
}

TEST(Flags, ReadEveryValue) {
  const TrainFlags flags =
      parse({"--devices=cpu:4", "--trainer=replicated", "--allreduce=naive",
             "--gradient_repacking=4", "--batch_size=16", "--epochs=7", "--max_steps=100",
             "--seed=18446744073709551615", "--learning_rate=2.5e-3", "--data_dir=/data",
             "--threads=3", "--log_device_placement", "--json=out=1.json"});
  EXPECT_EQ(flags.devices.size(), 4u);
  EXPECT_EQ(flags.allreduce, "naive");
  EXPECT_EQ(flags.gradient_repacking, 4);
  EXPECT_EQ(flags.batch_size, 16);
  EXPECT_EQ(flags.epochs, 7);
  EXPECT_EQ(flags.max_steps, 100);
  EXPECT_EQ(flags.seed, 18446744073709551615u);
  EXPECT_EQ(flags.learning_rate, 2.5e-3);
  EXPECT_EQ(flags.data_dir, "/data");
  EXPECT_EQ(flags.threads, 3);
  EXPECT_TRUE(flags.log_device_placement);
  EXPECT_EQ(flags.json, "out=1.json");
}

TEST(Flags, ReadWhatInspectsAndWhatSaves) {
  const TrainFlags saving =
      parse({"--trace_file=t.json", "--save_checkpoint=a/b", "--restore-checkpoint", "c"});
  EXPECT_EQ(saving.trace_file, "t.json");
  EXPECT_EQ(saving.save_checkpoint, "a/b");
  EXPECT_EQ(saving.restore_checkpoint, "c");
  EXPECT_FALSE(saving.dry_run);
  const TrainFlags inspecting = parse({"--dry_run", "--explain=tower0/fc/W"});
  EXPECT_TRUE(inspecting.dry_run);
  EXPECT_EQ(inspecting.explain, "tower0/fc/W");
}

TEST(Flags, RefuseFilesThatNothingWouldBeWrittenTo) {
  EXPECT_THAT(refusal({"--dry_run", "--trace_file=t"}),
              AllOf(HasSubstr("--trace_file=t"), HasSubstr("--dry_run")));
  EXPECT_THAT(refusal({"--explain=x", "--save_checkpoint=c"}),
              AllOf(HasSubstr("--save_checkpoint=c"), HasSubstr("--explain")));
  EXPECT_THAT(refusal({"--dry_run", "--restore_checkpoint=c"}), HasSubstr("--restore_checkpoint"));
}

TEST(Flags, CheckEquivalenceOfAllModesInsteadOfTraining) {
  EXPECT_EQ(parse({}).check_equivalence, 0);
  EXPECT_EQ(parse({"--check_equivalence=5", "--devices=cpu:4"}).check_equivalence, 5);
  EXPECT_THAT(refusal({"--check_equivalence=0"}), HasSubstr("--check_equivalence=0"));
  for (const char* other :
       {"--save_checkpoint=c", "--restore_checkpoint=c", "--trace_file=t", "--dry_run",
        "--explain=x", "--log_device_placement", "--trainer=replicated", "--allreduce=naive",
        "--gradient_repacking=2", "--small_tensors_kb=4", "--bucket_mb=1", "--fuse_updates=0",
        "--share_replicas=0", "--async=free", "--epochs=2", "--max_steps=3"}) {
    const std::string flag = std::string(other).substr(0, std::string_view(other).find('='));
    EXPECT_THAT(refusal({"--check_equivalence=5", other}),
                AllOf(HasSubstr(flag), HasSubstr("--check_equivalence")))
        << other;
  }
  EXPECT_EQ(parse({"--check_equivalence=5", "--json=f"}).json, "f");
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
  EXPECT_EQ(flags.devices.size(), 4u);
  EXPECT_EQ(flags.allreduce, "naive");
  EXPECT_EQ(flags.seed, 7u);
  EXPECT_EQ(flags.batch_size, 96);
}

TEST(TrainFlagSet, LeavesBenchmarksWithoutFlagsOfEpochsAndFiles) {
  FlagParser parser("Benchmarks.", "bench");
  const TrainFlagSet set(parser, {.program = "bench", .benchmark = true});
  const char* const help[] = {"--help"};
  const std::string text = parser.parse(help);
  for (const char* flag : {"--batch_size", "--learning_rate", "--dry_run", "--check_equivalence",
                           "--threads", "--json", "[the model's]"})
    EXPECT_THAT(text, HasSubstr(flag));
  for (const char* flag : {"--epochs", "--max_steps", "--data_dir", "--save_checkpoint",
                           "--restore_checkpoint", "--explain", "--trace_file"})
    EXPECT_THAT(text, testing::Not(HasSubstr(flag)));
}

TEST(Flags, TakeGpusThatDoNotExistForDryRuns) {
  const TrainFlags flags = parse({"--dry_run", "--devices=gpu:8"});
  EXPECT_EQ(flags.devices.size(), 8u);
  EXPECT_EQ(flags.devices[7].str(), "/job:localhost/replica:0/task:0/device:GPU:7");
  EXPECT_EQ(parse({"--dry_run", "--devices=/cpu:0,/gpu:1"}).devices.size(), 2u);
  EXPECT_THAT(refusal({"--devices=gpu:8"}), HasSubstr("--dry_run"));
  EXPECT_THAT(refusal({"--dry_run", "--devices=tpu:8"}), HasSubstr("no TPU devices"));
  EXPECT_THAT(refusal({"--dry_run", "--devices=/cpu:1000,/gpu:30"}),
              HasSubstr("1001 CPU and 31 GPU devices"));
}

TEST(Flags, TakeDashesForUnderscoresInNamesOnly) {
  EXPECT_EQ(parse({"--batch-size=8"}).batch_size, 8);
  EXPECT_EQ(parse({"--batch_size", "8"}).batch_size, 8);
  EXPECT_EQ(parse({"--data-dir", "a-b"}).data_dir, "a-b");
  EXPECT_TRUE(parse({"--log-device-placement"}).log_device_placement);
  EXPECT_THAT(refusal({"--batchsize=8"}), HasSubstr("unknown flag"));
}

TEST(Flags, TakeTheLastOfSeveralValues) { EXPECT_EQ(parse({"--seed=3", "--seed=5"}).seed, 5u); }

TEST(Flags, SuggestTheNearestNameForUnknownOnes) {
  EXPECT_EQ(refusal({"--bath_size=3"}), "unknown flag --bath_size; did you mean --batch_size?");
  EXPECT_EQ(refusal({"--qqqqqqqqq"}), "unknown flag --qqqqqqqqq; see --help");
}

TEST(Flags, RefuseWhatIsNoFlag) {
  EXPECT_THAT(refusal({"cpu:4"}), HasSubstr("'cpu:4' is no flag"));
  EXPECT_THAT(refusal({"-n"}), HasSubstr("'-n' is no flag"));
  EXPECT_THAT(refusal({"--"}), HasSubstr("'--' is no flag"));
  EXPECT_THAT(refusal({""}), HasSubstr("is no flag"));
}

TEST(Flags, RefuseMissingValues) {
  EXPECT_EQ(refusal({"--epochs"}), "--epochs needs a value");
  EXPECT_EQ(refusal({"--epochs="}), "--epochs needs a value");
  EXPECT_EQ(refusal({"--json", ""}), "--json needs a value");
  EXPECT_EQ(refusal({"--json", "--max_steps=1"}),
            "--json needs a value, but --max_steps=1 follows");
}

TEST(Flags, RefuseNumbersThatAreNone) {
  for (const char* argument : {"--epochs=three", "--epochs=1.5", "--batch_size=8x", "--seed=-1",
                               "--learning_rate=fast", "--max_steps=99999999999999999999"})
    EXPECT_THAT(refusal({argument}), HasSubstr(std::string(argument).substr(2, 4))) << argument;
}

TEST(Flags, RefuseNumbersOutOfRange) {
  EXPECT_THAT(refusal({"--epochs=0"}), HasSubstr("--epochs=0 is not between 1"));
  EXPECT_THAT(refusal({"--batch_size=0"}), HasSubstr("--batch_size=0 is not between 1"));
  EXPECT_THAT(refusal({"--batch_size", "-4"}), HasSubstr("--batch_size=-4 is not between 1"));
  EXPECT_THAT(refusal({"--batch_size=3000000000"}), HasSubstr("--batch_size=3000000000"));
  EXPECT_THAT(refusal({"--max_steps=-1"}), HasSubstr("--max_steps=-1"));
  EXPECT_THAT(refusal({"--threads=-1"}), HasSubstr("--threads=-1"));
  EXPECT_THAT(refusal({"--gradient_repacking=-1"}), HasSubstr("--gradient_repacking=-1"));
}

TEST(Flags, RefuseLearningRatesThatAreNegativeOrNotFinite) {
  for (const char* argument : {"--learning_rate=nan", "--learning_rate=inf", "--learning_rate=-inf",
                               "--learning_rate=-0.1"})
    EXPECT_THAT(refusal({argument}), HasSubstr("is not a finite number >= 0")) << argument;
  EXPECT_THAT(refusal({"--learning_rate", "-1"}), HasSubstr("--learning_rate=-1"));
  EXPECT_EQ(parse({"--learning_rate=0"}).learning_rate, 0.0);
}

TEST(Flags, LeaveOutDataDirForProgramsWithoutFiles) {
  EXPECT_THROW(parse({"--data_dir=/d"}, {.program = "p", .reads_files = false}), FlagError);
  EXPECT_THAT(parse({"--help"}, {.program = "p", .reads_files = false}).help,
              testing::Not(HasSubstr("data_dir")));
}

TEST(Flags, PrintHelpInGroupsWithUnitsAndDefaults) {
  for (const char* spelling : {"--help", "-h"}) {
    const std::string help =
        parse({spelling}, {.program = "p", .batch_size = 48, .epochs = 9}).help;
    for (const char* part : {"Devices and gradients",
                             "Training",
                             "Data",
                             "Execution and output",
                             "Checkpoints",
                             "--save_checkpoint",
                             "--restore_checkpoint",
                             "Inspection",
                             "--dry_run",
                             "--check_equivalence",
                             "--explain",
                             "--trace_file",
                             "--devices",
                             "cpu:2",
                             "--trainer",
                             "replicated (a copy of all variables per device) | simple (one tower)",
                             "--allreduce",
                             "halving_doubling",
                             "by size: tensors of up to SIZE bytes",
                             "What auto chooses by",
                             "--links",
                             "--remeasure",
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
                             "--seed",
                             "--data_dir",
                             "--threads",
                             "--log_device_placement",
                             "--json"})
      EXPECT_THAT(help, HasSubstr(part)) << part;
  }
}

TEST(DevicesFlag, CountsWithOneTypeAndNumber) {
  EXPECT_EQ(names("cpu:4"), (std::vector{cpu(0), cpu(1), cpu(2), cpu(3)}));
  EXPECT_EQ(names("CPU:1"), std::vector{cpu(0)});
}

TEST(DevicesFlag, NamesDevicesInListsAndAfterSlashes) {
  EXPECT_EQ(names("/cpu:1"), std::vector{cpu(1)});
  EXPECT_EQ(names("cpu:0,cpu:2"), (std::vector{cpu(0), cpu(2)}));
  EXPECT_EQ(names("cpu:3,/device:CPU:1"), (std::vector{cpu(3), cpu(1)}));
  EXPECT_EQ(names(cpu(5)), std::vector{cpu(5)});
}

TEST(DevicesFlag, RefusesDuplicates) {
  EXPECT_THAT(device_refusal("cpu:1,cpu:1"), HasSubstr("named twice"));
  EXPECT_THAT(device_refusal("/cpu:0,/device:CPU:0"), HasSubstr("named twice"));
}

TEST(DevicesFlag, RefusesWhatIsNoDevice) {
  EXPECT_THAT(device_refusal(""), HasSubstr("neither a count"));
  EXPECT_THAT(device_refusal("cpu"), HasSubstr("neither a count"));
  EXPECT_THAT(device_refusal("4"), HasSubstr("neither a count"));
  EXPECT_THAT(device_refusal("cpu:0"), AllOf(HasSubstr("is a count"), HasSubstr("/cpu:0")));
  EXPECT_THAT(device_refusal("cpu:x"), HasSubstr("--devices: 'cpu:x': 'x' is not a whole number"));
  EXPECT_THAT(device_refusal("cpu:-2"), HasSubstr("is a count"));
  EXPECT_THAT(device_refusal("cpu:1000000"), HasSubstr("between 1 and 1024"));
  EXPECT_THAT(device_refusal("cpu:99999999999"), HasSubstr("between 1 and 1024"));
  EXPECT_THAT(device_refusal("gpu:2"), HasSubstr("no GPU devices"));
  EXPECT_THAT(device_refusal("/gpu:0"), HasSubstr("no GPU devices"));
  EXPECT_THAT(device_refusal("cpu:0,"), HasSubstr("empty"));
  EXPECT_THAT(device_refusal(",cpu:0"), HasSubstr("empty"));
  EXPECT_THAT(device_refusal("/cpu:*"), HasSubstr("does not name one device"));
  EXPECT_THAT(device_refusal("/cpu"), HasSubstr("does not name one device"));
  EXPECT_THAT(device_refusal("/foo:1"), HasSubstr("--devices"));
  EXPECT_THAT(device_refusal("/cpu:5000"), HasSubstr("at most"));
  EXPECT_THAT(device_refusal("/job:worker/cpu:0"), HasSubstr("not in this process"));
}

TEST(TrainerFlag, FollowsTheNumberOfDevices) {
  EXPECT_EQ(parse({"--devices=cpu:1"}).trainer, "simple");
  EXPECT_EQ(parse({"--devices=cpu:1"}).allreduce, "");
  EXPECT_EQ(parse({"--devices=/cpu:3"}).trainer, "simple");
  EXPECT_EQ(parse({"--devices=cpu:3"}).trainer, "replicated");
  EXPECT_EQ(parse({"--devices=cpu:1", "--trainer=replicated"}).allreduce, "collective");
  EXPECT_EQ(parse({"--trainer=parameter_server"}).allreduce, "colocate");
}

TEST(TrainerFlag, IsRefusedWhenUnknown) {
  EXPECT_THAT(refusal({"--trainer=replicatd"}),
              AllOf(HasSubstr("--trainer"), HasSubstr("did you mean 'replicated'")));
  EXPECT_THAT(refusal({"--allreduce=nave"}),
              AllOf(HasSubstr("--allreduce"), HasSubstr("did you mean 'naive'")));
}

TEST(TrainerFlag, IsRefusedWithFlagsThatContradictItNamingBoth) {
  EXPECT_THAT(refusal({"--trainer=simple"}),
              AllOf(HasSubstr("--trainer=simple"), HasSubstr("--devices=cpu:2")));
  EXPECT_THAT(refusal({"--devices=cpu:1", "--trainer=simple", "--allreduce=naive"}),
              AllOf(HasSubstr("--trainer=simple"), HasSubstr("--allreduce=naive")));
  EXPECT_THAT(refusal({"--devices=cpu:1", "--allreduce=naive"}),
              AllOf(HasSubstr("--trainer=simple"), HasSubstr("--allreduce=naive")));
  EXPECT_THAT(refusal({"--trainer=replicated", "--allreduce=colocate"}),
              AllOf(HasSubstr("--trainer=replicated"), HasSubstr("--allreduce=colocate")));
  for (const char* strategy : {"collective", "naive", "hierarchical"}) {
    const std::string flag = std::string("--allreduce=") + strategy;
    EXPECT_THAT(refusal({"--trainer=parameter_server", flag.c_str()}),
                AllOf(HasSubstr("--trainer=parameter_server"), HasSubstr(flag)));
  }
  EXPECT_THAT(refusal({"--trainer=parameter_server", "--gradient_repacking=2"}),
              AllOf(HasSubstr("--trainer=parameter_server"), HasSubstr("--gradient_repacking=2")));
  EXPECT_THAT(refusal({"--devices=cpu:1", "--gradient_repacking=2"}),
              AllOf(HasSubstr("--trainer=simple"), HasSubstr("--gradient_repacking=2")));
}

TEST(TrainerFlag, IsRefusedWithFlagsThatItHasNoUseFor) {
  for (const char* pass : {"--fuse_updates=1", "--share_replicas=1"}) {
    for (const char* trainer : {"--trainer=parameter_server", "--trainer=async"}) {
      EXPECT_EQ(refusal({pass, trainer}),
                cat(pass, " has no use for ", trainer, ", which has no replicas"));
    }
    EXPECT_EQ(refusal({pass, "--devices=cpu:1"}),
              cat(pass,
                  " has no use for --trainer=simple (chosen for --devices=cpu:1), which has "
                  "no replicas"));
    EXPECT_EQ(parse({pass, "--devices=cpu:1", "--trainer=replicated"}).devices.size(), 1u);
  }
  const TrainFlags off = parse({"--trainer=async", "--fuse_updates=0", "--share_replicas=0"});
  EXPECT_FALSE(off.fuse_updates || off.share_replicas);
  EXPECT_EQ(refusal({"--tower_weights=3", "--devices=cpu:1", "--trainer=simple"}),
            "--tower_weights=3 has no use for --trainer=simple, which takes one device");
  EXPECT_EQ(
      parse({"--tower_weights=3", "--devices=cpu:1", "--trainer=replicated"}).tower_weights.size(),
      1u);
}

TEST(AllreduceFlag, TakesSpecsBySize) {
  for (const char* spec : {"collective:64k:hierarchical", "pscpu:2k:pscpu#2:64k:xring", "ring#2",
                           "shuffle", "naive_cpu", "halving_doubling", "rechd", "psgpu"})
    EXPECT_EQ(parse({"--devices=cpu:4", "--allreduce", spec}).allreduce, spec);
  EXPECT_EQ(parse({"--allreduce=naive-cpu:2k:halving-doubling"}).allreduce,
            "naive_cpu:2k:halving_doubling")
      << "- and _ are alike in names";
}

TEST(AllreduceFlag, RefusesSpecsNamingThemAndThePieceThatIsWrong) {
  EXPECT_THAT(refusal({"--allreduce=rong"}),
              AllOf(HasSubstr("--allreduce"), HasSubstr("'rong'; did you mean 'ring'?")));
  EXPECT_THAT(refusal({"--allreduce=pscpu:-1:xring"}),
              AllOf(HasSubstr("'pscpu:-1:xring'"), HasSubstr("limit '-1'")));
  EXPECT_THAT(refusal({"--allreduce=nccl:"}), HasSubstr("not well formed"));
  EXPECT_THAT(refusal({"--allreduce=ring#-2"}), HasSubstr("'-2' is not a number of chunks"));
  EXPECT_THAT(refusal({"--allreduce=auto:2k:ring"}), HasSubstr("stands alone"));
}

TEST(AutoFlags, AreReadWithTheWishThatTheyServe) {
  const TrainFlags flags = parse({"--allreduce=auto", "--auto-any", "--links=l.json"});
  EXPECT_EQ(flags.allreduce, "auto");
  EXPECT_TRUE(flags.automatic.auto_any);
  EXPECT_EQ(flags.automatic.links, "l.json");
  EXPECT_FALSE(flags.automatic.remeasure);
  EXPECT_TRUE(
      parse({"--trainer=replicated", "--allreduce=auto", "--remeasure"}).automatic.remeasure);
  EXPECT_EQ(parse({"--check_equivalence=2", "--links=l.json"}).automatic.links, "l.json")
      << "auto is one of the modes";
  EXPECT_FALSE(parse({"--allreduce=auto"}).bucket_mb_given);
  EXPECT_TRUE(parse({"--allreduce=auto", "--bucket_mb=0"}).bucket_mb_given);
}

TEST(AutoFlags, AreRefusedWhereNothingIsChosen) {
  for (const char* flag : {"--links=l.json", "--remeasure", "--auto_any"}) {
    EXPECT_EQ(refusal({flag}), cat(flag,
                                   " is for the choice of a strategy; without "
                                   "--allreduce=auto there is none"));
    EXPECT_THAT(refusal({flag, "--allreduce=naive"}), HasSubstr("without --allreduce=auto"));
    EXPECT_THAT(refusal({flag, "--trainer=parameter_server"}), HasSubstr(flag));
  }
  EXPECT_THAT(refusal({"--allreduce=auto", "--links=l", "--remeasure"}),
              AllOf(HasSubstr("--links=l"), HasSubstr("no use for --remeasure")));
}

TEST(AutoFlags, AreOfTrainersThatHaveAChoice) {
  EXPECT_EQ(refusal({"--trainer=parameter_server", "--allreduce=auto"}),
            "--trainer=parameter_server does not take --allreduce=auto");
  EXPECT_THAT(refusal({"--trainer=async", "--allreduce=auto"}), HasSubstr("combines no gradients"));
  EXPECT_THAT(refusal({"--devices=cpu:1", "--allreduce=auto"}),
              AllOf(HasSubstr("--trainer=simple"), HasSubstr("--allreduce=auto")));
  EXPECT_THAT(refusal({"--allreduce=auto#2"}), HasSubstr("takes no number of chunks"));
}

TEST(AutoFlags, NeedADescriptionOfDevicesThatAreNotHere) {
  EXPECT_EQ(refusal({"--allreduce=auto", "--dry_run", "--devices=gpu:2"}),
            "--allreduce=auto: GPU:0 is declared, not here to be measured; describe the machine "
            "with --links=FILE, or name a strategy");
  EXPECT_EQ(parse({"--allreduce=auto", "--dry_run", "--devices=gpu:2", "--links=l"}).allreduce,
            "auto");
  EXPECT_EQ(parse({"--allreduce=auto", "--dry_run", "--devices=cpu:2"}).allreduce, "auto");
}

TEST(AllreduceFlag, RefusesWhatThisBuildOrProcessCannotDo) {
  EXPECT_EQ(refusal({"--allreduce=nccl"}),
            "--allreduce=nccl: NCCL needs GPUs, which this build does not drive; use collective "
            "(--devices=cpu:2 has 2)");
  EXPECT_THAT(refusal({"--dry_run", "--devices=gpu:8", "--allreduce=nccl"}),
              HasSubstr("NCCL needs GPUs"));
  for (const char* name : {"nccl/xring", "nccl/rechd", "nccl/pscpu", "pscpu/pscpu"})
    EXPECT_THAT(refusal({"--allreduce", name}),
                StartsWith(cat("--allreduce=", name, ": ", name, " needs several processes")));
}

TEST(AllreduceFlag, RefusesColocateInsideSpecsOfTheReplicatedTrainer) {
  EXPECT_THAT(refusal({"--allreduce=naive:2k:colocate"}),
              AllOf(HasSubstr("--trainer=replicated"), HasSubstr("naive:2k:colocate")));
  EXPECT_THAT(refusal({"--trainer=parameter_server", "--allreduce=colocate:2k:naive"}),
              HasSubstr("--trainer=parameter_server"));
}

TEST(AllreduceFlag, RefusesHierarchicalInsideSpecsForOddNumbersOfDevices) {
  EXPECT_THAT(
      refusal({"--devices=cpu:3", "--allreduce=collective:64k:hierarchical"}),
      AllOf(StartsWith("--allreduce=collective:64k:hierarchical: hierarchical needs an even "
                       "number of towers, not K = 3"),
            HasSubstr("--devices=cpu:3")));
}

TEST(SmallTensorsFlag, IsReadAndRefusedWhereNothingIsPacked) {
  EXPECT_EQ(parse({"--small_tensors_kb=4"}).small_tensors_kb, 4);
  EXPECT_EQ(parse({"--small-tensors-kb=0", "--trainer=parameter_server"}).small_tensors_kb, 0);
  EXPECT_THAT(refusal({"--small_tensors_kb=4", "--trainer=parameter_server"}),
              AllOf(HasSubstr("--small_tensors_kb=4"), HasSubstr("--trainer=parameter_server")));
  EXPECT_THAT(refusal({"--small_tensors_kb=4", "--devices=cpu:1"}),
              AllOf(HasSubstr("--small_tensors_kb=4"), HasSubstr("--trainer=simple")));
  EXPECT_THAT(refusal({"--small_tensors_kb=4", "--gradient_repacking=2"}),
              AllOf(HasSubstr("--small_tensors_kb=4"), HasSubstr("--gradient_repacking=2")));
  for (const char* value : {"-1", "x", "1.5", "4k", "99999999999"})
    EXPECT_THAT(refusal({"--small_tensors_kb", value}),
                HasSubstr(std::string("--small_tensors_kb=") + value));
}

TEST(BucketFlag, IsARealNumberOfMebibytes) {
  EXPECT_EQ(parse({"--bucket_mb=0.25"}).bucket_mb, 0.25);
  EXPECT_EQ(parse({"--bucket-mb", "16"}).bucket_mb, 16);
  EXPECT_EQ(parse({"--bucket_mb=0"}).bucket_mb, 0);
  EXPECT_EQ(parse({"--bucket_mb=3", "--trainer=parameter_server"}).bucket_mb, 3);
  for (const char* flag : {"--bucket_mb=-1", "--bucket_mb=x", "--bucket_mb=nan", "--bucket_mb=inf",
                           "--bucket_mb=4MB", "--bucket_mb=1e300"})
    EXPECT_THAT(refusal({flag}), HasSubstr(flag));
}

TEST(BucketFlag, DependsOnTheTrainerAndOnPacking) {
  EXPECT_EQ(parse({"--trainer=parameter_server"}).bucket_mb, kDefaultBucketMb);
  EXPECT_EQ(parse({"--devices=cpu:1"}).bucket_mb, 0);
  EXPECT_EQ(parse({"--devices=cpu:1", "--bucket_mb=0"}).bucket_mb, 0);
  EXPECT_THAT(refusal({"--devices=cpu:1", "--bucket_mb=2"}),
              AllOf(HasSubstr("--trainer=simple"), HasSubstr("--bucket_mb=2")));
  EXPECT_EQ(parse({"--gradient_repacking=4"}).bucket_mb, 0);
  EXPECT_EQ(parse({"--gradient_repacking=4", "--bucket_mb=0"}).bucket_mb, 0);
  EXPECT_THAT(refusal({"--gradient_repacking=4", "--bucket_mb=2"}),
              AllOf(HasSubstr("--gradient_repacking=4"), HasSubstr("--bucket_mb=2")));
}

TEST(AsyncFlag, IsOrderedUnlessItIsGivenAndForTheAsyncTrainerAlone) {
  EXPECT_EQ(parse({"--trainer=async"}).async, "ordered");
  EXPECT_EQ(parse({"--trainer=async", "--async=ordered"}).async, "ordered");
  EXPECT_EQ(parse({"--async=free", "--trainer=async"}).async, "free");
  EXPECT_EQ(parse({"--trainer=async", "--devices=cpu:1"}).async, "ordered");
  EXPECT_EQ(parse({"--trainer=async"}).allreduce, "");
  EXPECT_EQ(parse({"--trainer=replicated"}).async, "");
  for (const char* trainer : {"replicated", "parameter_server"})
    EXPECT_THAT(refusal({"--async=free", (std::string("--trainer=") + trainer).c_str()}),
                AllOf(HasSubstr("--async=free needs --trainer=async"), HasSubstr(trainer)));
  EXPECT_THAT(refusal({"--async=ordered"}), HasSubstr("chosen for --devices=cpu:2"));
  EXPECT_EQ(refusal({"--trainer=async", "--async=fast"}),
            "--async=fast is neither ordered nor free");
}

TEST(AsyncFlag, IsRefusedWithFlagsThatCombineGradients) {
  EXPECT_THAT(
      refusal({"--trainer=async", "--allreduce=naive"}),
      AllOf(HasSubstr("--trainer=async combines no gradients"), HasSubstr("--allreduce=naive")));
  EXPECT_THAT(refusal({"--trainer=async", "--async=free", "--gradient_repacking=2"}),
              AllOf(HasSubstr("--trainer=async"), HasSubstr("--gradient_repacking=2")));
}

TEST(AllreduceFlag, RefusesHierarchicalForOddNumbersOfDevices) {
  EXPECT_THAT(refusal({"--devices=cpu:3", "--allreduce=hierarchical"}),
              AllOf(HasSubstr("--allreduce=hierarchical"), HasSubstr("--devices=cpu:3")));
  EXPECT_THAT(refusal({"--devices=cpu:1", "--trainer=replicated", "--allreduce=hierarchical"}),
              HasSubstr("even number"));
  EXPECT_EQ(parse({"--devices=cpu:6", "--allreduce=hierarchical"}).allreduce, "hierarchical");
}

TEST(Flags, ReadHowBatchesAreDivided) {
  const TrainFlags none = parse({});
  EXPECT_EQ(none.uneven, Uneven::kDrop);
  EXPECT_TRUE(none.tower_weights.empty());
  const TrainFlags given =
      parse({"--devices=cpu:3", "--uneven=weight", "--tower-weights=2,1.5,0.25"});
  EXPECT_EQ(given.uneven, Uneven::kWeight);
  EXPECT_EQ(given.tower_weights, (std::vector<double>{2, 1.5, 0.25}));
  for (const char* trainer : {"--trainer=replicated", "--trainer=parameter_server"})
    EXPECT_EQ(parse({trainer, "--uneven=pad", "--tower_weights=2,1"}).uneven, Uneven::kPad);
  EXPECT_EQ(parse({"--devices=cpu:1", "--uneven=weight"}).uneven, Uneven::kWeight);
}

TEST(Flags, RefuseDivisionsThatCannotBe) {
  EXPECT_THAT(refusal({"--trainer=async", "--uneven=pad"}),
              AllOf(HasSubstr("--uneven=pad"), HasSubstr("--trainer=async does not take")));
  EXPECT_THAT(refusal({"--trainer=async", "--tower_weights=2,1"}),
              AllOf(HasSubstr("--tower_weights=2,1"), HasSubstr("--trainer=async")));
  EXPECT_EQ(parse({"--trainer=async", "--uneven=error"}).uneven, Uneven::kError);
  EXPECT_THAT(refusal({"--uneven=wait"}), AllOf(HasSubstr("--uneven"), HasSubstr("weight")));
  EXPECT_EQ(refusal({"--tower_weights=1"}),
            "--tower_weights has 1 where there are 2 devices; give one weight for each");
  EXPECT_EQ(refusal({"--tower_weights=1,0"}),
            "--tower_weights: 0 is not a number from 1e-9 to 1e6");
  for (const char* wrong : {"--tower_weights=1,", "--tower_weights=,", "--tower_weights=1,x",
                            "--tower_weights=1,0", "--tower_weights=1,-1", "--tower_weights=1,nan",
                            "--tower_weights=1,inf", "--tower_weights=1 2"})
    EXPECT_THAT(refusal({wrong}), HasSubstr("--tower_weights")) << wrong;
  EXPECT_THAT(refusal({"--tower_weights=100,1", "--batch_size=4"}),
              AllOf(HasSubstr("--tower_weights=100,1 leaves CPU:1 none of the 8"),
                    HasSubstr("--batch_size=4")));
}

}  // namespace
}  // namespace belfry
