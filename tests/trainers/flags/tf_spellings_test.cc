// The flags of tf_cnn_benchmarks on the command lines of our programs.
#include "belfry/trainers/flags/tf_spellings.h"

#include <limits>
#include <regex>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "belfry/framework/base/text.h"
#include "belfry/tests/trainers/program/parsed_flags.h"
#include "belfry/trainers/flags/flag_parser.h"
#include "belfry/trainers/flags/flag_spellings.h"

namespace belfry {
namespace tf_spellings_test {

using testing::AllOf;
using testing::HasSubstr;
using testing::Not;

TrainFlags bench(std::vector<const char*> arguments) {
  FlagParser parser("Benchmarks.", "bench");
  std::string model, num_batches;
  parser.add("--model", model, "NAME", "to train");
  parser.add("--num_batches", num_batches, "N", "steps");
  const TrainFlagSet set(parser, {.program = "bench", .reads_files = false, .benchmark = true});
  parser.parse(arguments);
  return set.read();
}

std::string bench_refusal(std::vector<const char*> arguments) {
  try {
    bench(std::move(arguments));
  } catch (const FlagError& error) {
    return error.what();
  }
  return "(accepted)";
}

TEST(TfSpellings, NameLogicalCpuDevicesOrGpus) {
  EXPECT_EQ(parse({"--num_gpus=4", "--device=cpu"}).trainer.devices,
            parse({"--devices=cpu:4"}).trainer.devices);
  EXPECT_EQ(parse({"--device=CPU", "--num_gpus", "4"}).trainer.devices.size(), 4u);
  EXPECT_EQ(parse({"--device=cpu"}).trainer.devices.size(), 1u) << "num_gpus is 1 there";
  EXPECT_EQ(parse({"--num_gpus=8", "--dry_run"}).trainer.devices,
            parse({"--devices=gpu:8", "--dry_run"}).trainer.devices);
  EXPECT_EQ(parse({"--num_gpus=8", "--device=gpu", "--dry_run"}).trainer.devices.size(), 8u);
  EXPECT_EQ(parse({"--devices=cpu:4", "--device=cpu"}).trainer.devices.size(), 4u);
  EXPECT_THAT(refusal({"--num_gpus=900"}),
              AllOf(HasSubstr("--num_gpus=900"), Not(HasSubstr("--devices: "))));
  EXPECT_EQ(refusal({"--device=tpu"}), "--device=tpu is neither cpu nor gpu");
}

TEST(TfSpellings, NameTheTrainer) {
  EXPECT_EQ(parse({"--variable_update=parameter_server"}).kind, "parameter_server");
  EXPECT_EQ(parse({"--variable_update=replicated"}).kind, "replicated");
  EXPECT_EQ(parse({"--variable_update=replicated"}).trainer.aggregation.allreduce, "collective");
  EXPECT_EQ(parse({"--variable_update=distributed_all_reduce", "--all_reduce_spec=xring"}).kind,
            "replicated");
  EXPECT_EQ(parse({"--variable_update=collective_all_reduce"}).trainer.aggregation.allreduce,
            "collective");
  EXPECT_THAT(refusal({"--variable_update=independent"}),
              AllOf(HasSubstr("--variable_update=independent"), HasSubstr("--trainer=")));
  for (const char* mode : {"--variable_update=horovod", "--variable_update=distributed_replicated"})
    EXPECT_THAT(refusal({mode}), AllOf(HasSubstr(mode), HasSubstr("several processes")));
  EXPECT_THAT(refusal({"--variable_update=replicatd"}),
              AllOf(HasSubstr("--variable_update=replicatd"), HasSubstr("--trainer=replicated")));
}

TEST(TfSpellings, NameTheStrategyWithItsMeaningThere) {
  const std::pair<const char*, const char*> same[] = {
      {"xring", "xring"},
      {"xring#2", "xring#2"},
      {"collective#2", "collective#2"},
      {"pscpu", "naive_cpu"},
      {"pscpu#1", "naive_cpu"},
      {"psgpu", "naive"},
      {"psgpu#4", "shuffle"},
      {"pscpu:32k:xring", "naive_cpu:32k:xring"},
      {"pscpu:2k:psgpu#4:64k:xring#2", "naive_cpu:2k:shuffle:64k:xring#2"},
      {"hiercopy", "hierarchical"},
      {"pscpu:32k:hierarchical_copy", "naive_cpu:32k:hierarchical"}};
  for (const auto& [spec, ours] : same)
    EXPECT_EQ(parse({"--device=cpu", "--num_gpus=4", "--variable_update=replicated",
                     "--all_reduce_spec", spec})
                  .trainer.aggregation.allreduce,
              ours)
        << spec;
  EXPECT_THAT(refusal({"--devices=cpu:4", "--all_reduce_spec=psgpu#2"}),
              AllOf(HasSubstr("--all_reduce_spec=psgpu#2"), HasSubstr("--allreduce=shuffle")));
  for (const char* spec : {"--all_reduce_spec=:", "--all_reduce_spec=:xring"})
    EXPECT_THAT(refusal({spec}), AllOf(HasSubstr(spec), HasSubstr("is empty")));
  EXPECT_THAT(refusal({"--all_reduce_spec=pscpu#2"}), HasSubstr("--allreduce=naive_cpu"));
  EXPECT_THAT(refusal({"--all_reduce_spec=nccl/xring"}),
              AllOf(HasSubstr("--all_reduce_spec=nccl/xring: "), HasSubstr("several processes")));
  EXPECT_THAT(refusal({"--all_reduce_spec=pscpu:32k"}), HasSubstr("not well formed"));
  EXPECT_THAT(
      refusal({"--variable_update=parameter_server", "--all_reduce_spec=xring"}),
      "--variable_update=parameter_server does not take --all_reduce_spec=xring; leave it out, "
      "or write --trainer=replicated");
  EXPECT_EQ(parse({"--hierarchical_copy"}).trainer.aggregation.allreduce, "hierarchical");
  EXPECT_EQ(parse({"--hierarchical_copy=false"}).trainer.aggregation.allreduce, "collective");
  EXPECT_EQ(parse({"--nohierarchical_copy"}).trainer.aggregation.allreduce, "collective");
}

TEST(TfSpellings, PutVariablesOrSumsOnTheParameterDevice) {
  const TrainFlags cpu = parse({"--num_gpus=4", "--local_parameter_device=cpu", "--dry_run",
                                "--variable_update=parameter_server"});
  EXPECT_EQ(cpu.kind, "parameter_server");
  EXPECT_TRUE(cpu.trainer.parameters_on_cpu);
  EXPECT_EQ(cpu.trainer.devices.size(), 4u);
  EXPECT_FALSE(parse({"--variable_update=parameter_server", "--local_parameter_device=gpu"})
                   .trainer.parameters_on_cpu);
  EXPECT_EQ(parse({"--local_parameter_device=CPU"}).kind, "parameter_server") << "as there";
  const auto replicated = [](const char* device, const char* other = "--seed=1") {
    return parse({"--variable_update=replicated", "--local_parameter_device", device, other})
        .trainer.aggregation.allreduce;
  };
  EXPECT_EQ(replicated("cpu"), "naive_cpu");
  EXPECT_EQ(replicated("gpu"), "naive");
  EXPECT_EQ(replicated("cpu", "--all_reduce_spec=xring"), "xring");
  EXPECT_EQ(replicated("cpu", "--allreduce=shuffle"), "shuffle");
  EXPECT_EQ(refusal({"--local_parameter_device=tpu"}),
            "--local_parameter_device=tpu is neither cpu nor gpu");
}

TEST(TfSpellings, NameNumbers) {
  EXPECT_EQ(parse({"--num_epochs=7"}).trainer.epochs, 7);
  EXPECT_EQ(parse({"--num-batches=70"}).trainer.max_steps, 70);
  EXPECT_EQ(parse({"--num_batches=70"}).trainer.epochs, std::numeric_limits<int>::max());
  EXPECT_EQ(parse({"--agg_small_grads_max_bytes=4096"}).trainer.aggregation.small_tensors_kb, 4);
  EXPECT_EQ(parse({"--agg_small_grads_max_bytes=0", "--agg_small_grads_max_group=10"})
                .trainer.aggregation.small_tensors_kb,
            0);
  EXPECT_EQ(parse({"--init_learning_rate=0.5"}).optimizer.learning_rate, 0.5);
  EXPECT_EQ(parse({"--tf_random_seed=9"}).trainer.seed, 9u);
  EXPECT_EQ(parse({"--num_inter_threads=3", "--num_intra_threads=1"}).trainer.session.threads, 3);
  EXPECT_EQ(parse({"--use_fp16"}).trainer.precision, Precision::kF16);
  EXPECT_EQ(parse({"--use_fp16=False"}).trainer.precision, Precision::kF32);
  EXPECT_THAT(
      refusal({"--agg_small_grads_max_bytes=1000"}),
      AllOf(HasSubstr("--agg_small_grads_max_bytes=1000"), HasSubstr("--small_tensors_kb")));
  EXPECT_THAT(refusal({"--num_batches=3", "--num_epochs=2"}),
              HasSubstr("--num_batches=3 and --num_epochs=2"));
  EXPECT_THAT(refusal({"--epochs=1", "--num_batches=100"}),
              HasSubstr("--num_batches=100 and --epochs=1 both say how long to train"));
}

TEST(TfSpellings, AreNamedByErrors) {
  EXPECT_THAT(refusal({"--num_epochs=0"}), HasSubstr("--num_epochs=0 is not a whole number"));
  EXPECT_THAT(refusal({"--num-epochs", "1.5"}), HasSubstr("--num_epochs=1.5 is not"));
  EXPECT_EQ(refusal({"--num_epochs"}), "--num_epochs needs a value");
  EXPECT_EQ(refusal({"--num_gpus=0", "--device=cpu"}),
            "--num_gpus=0 is not a whole number between 1 and 1024");
  EXPECT_EQ(refusal({"--num_gpus=1,2"}), "--num_gpus=1,2 is not a whole number between 1 and 1024");
  EXPECT_THAT(refusal({"--num_batches=0"}),
              HasSubstr("--num_batches=0 is not a whole number between 1"))
      << "--max_steps=0 is no limit";
  EXPECT_THAT(
      refusal({"--variable_update=parameter_server", "--gradient_repacking=2"}),
      AllOf(HasSubstr("--variable_update=parameter_server"), HasSubstr("--gradient_repacking=2")));
  EXPECT_THAT(refusal({"--check_equivalence=2", "--num_epochs=2"}),
              HasSubstr("--num_epochs=2 has"));
  EXPECT_THAT(refusal({"--num_epoch=3"}), HasSubstr("did you mean --num_epochs?"));
}

TEST(TfSpellings, ThatContradictOursAreRefusedNamingBoth) {
  EXPECT_EQ(refusal({"--epochs=3", "--num_epochs=4"}),
            "--epochs=3 and --num_epochs=4, which stands for --epochs=4, contradict each other; "
            "leave one of them out");
  EXPECT_EQ(parse({"--epochs=4", "--num_epochs=4"}).trainer.epochs, 4);
  EXPECT_EQ(parse({"--num_epochs=3", "--num_epochs=4"}).trainer.epochs, 4) << "the last of several";
  EXPECT_THAT(refusal({"--devices=cpu:4", "--num_gpus=4"}),
              HasSubstr("--devices=cpu:4 and --num_gpus=4, which stands for --devices=gpu:4, "));
  EXPECT_THAT(
      refusal({"--trainer=replicated", "--variable_update=parameter_server"}),
      AllOf(HasSubstr("--trainer=replicated"), HasSubstr("--variable_update=parameter_server")));
  EXPECT_THAT(refusal({"--allreduce=naive", "--all_reduce_spec=xring"}),
              HasSubstr("--allreduce=naive and --all_reduce_spec=xring"));
  EXPECT_THAT(refusal({"--hierarchical_copy", "--all_reduce_spec=xring"}),
              AllOf(HasSubstr("--hierarchical_copy"), HasSubstr("--all_reduce_spec=xring")));
}

TEST(TfSpellings, ThatMeanTheSameAsOursAreTaken) {
  EXPECT_EQ(parse({"--learning_rate=1e-1", "--init_learning_rate=0.1"}).optimizer.learning_rate,
            0.1);
  EXPECT_EQ(parse({"--seed=07", "--tf_random_seed=7"}).trainer.seed, 7u);
  EXPECT_EQ(parse({"--devices=CPU:2", "--num_gpus=2", "--device=cpu"}).trainer.devices.size(), 2u);
  EXPECT_EQ(parse({"--trainer=parameter-server", "--variable_update=parameter_server"}).kind,
            "parameter_server");
  const std::pair<const char*, const char*> specs[] = {{"ring", "xring"},
                                                       {"xring", "ring"},
                                                       {"halving-doubling", "rechd"},
                                                       {"ring#2", "xring#2"},
                                                       {"naive_cpu:32k:ring", "pscpu:32768:xring"}};
  for (const auto& [ours, other] : specs)
    EXPECT_EQ(parse({"--devices=cpu:4", "--allreduce", ours, "--all_reduce_spec", other})
                  .trainer.aggregation.allreduce,
              underscores_in_names(ours));
  for (const char* other : {"xring#2", "xring:1k:naive", "pscpu", "ring:"})
    EXPECT_THAT(refusal({"--devices=cpu:4", "--allreduce=ring", "--all_reduce_spec", other}),
                Not(HasSubstr("accepted")));
  EXPECT_THAT(refusal({"--seed=9007199254740993", "--tf_random_seed=9007199254740992"}),
              HasSubstr("contradict each other"));
}

TEST(TfSpellings, WithoutCounterpartSayWhatToWrite) {
  const std::pair<const char*, const char*> refusals[] = {
      {"--rmsprop_decay=0.9", "--alpha"},
      {"--data_name=imagenet", "--data_dir"},
      {"--data_format=NCHW", "NHWC"},
      {"--display_every=5", "train_bench"},
      {"--model=resnet50", "train_bench"},
      {"--gpu_indices=1,0", "--devices=gpu:1,gpu:0"},
      {"--worker_hosts=a,b", "belfry run -n N"},
      {"--num_warmup_batches=3", "train_bench"},
      {"--staged_vars", "variables are read"},
      {"--agg_small_grads_max_group=4", "up to 10"},
      {"--num_intra_threads=4", "--threads=N"},
      {"--minimum_learning_rate=0.1", "--learning_rate=X"},
      {"--piecewise_learning_rate_schedule=0.1;9;0.01", "--lr_schedule=SPEC"},
      {"--print_training_accuracy=false", "all metrics"},
      {"--use_chrome_trace_format=false", "Chrome's format"}};
  for (const auto& [flag, advice] : refusals)
    EXPECT_THAT(refusal({flag}), AllOf(HasSubstr(flag), HasSubstr(advice)));
  EXPECT_EQ(parse({"--data_format=nhwc", "--nodistortions", "--forward_only=False",
                   "--num_warmup_batches=0", "--variable_consistency=strong",
                   "--print_training_accuracy", "--use_chrome_trace_format"})
                .trainer.epochs,
            1);
}

TEST(TfSpellings, LetTheCommandsOfItsUsersRunTrainBench) {
  const TrainFlags flags =
      bench({"--device=cpu", "--local_parameter_device=cpu", "--num_gpus=8", "--data_format=NHWC",
             "--model=resnet20", "--data_name=cifar10", "--batch_size=16", "--num_batches=8",
             "--variable_update=replicated", "--all_reduce_spec=xring", "--num_intra_threads=1",
             "--num_inter_threads=2"});
  EXPECT_EQ(flags.trainer.devices.size(), 8u);
  EXPECT_EQ(flags.kind, "replicated");
  EXPECT_EQ(flags.trainer.aggregation.allreduce, "xring");
  EXPECT_EQ(flags.trainer.session.threads, 2);
  EXPECT_THAT(bench_refusal({"--data_name=imagenet", "--model=resnet20"}), HasSubstr("synthetic"));
  EXPECT_THAT(bench_refusal({"--num_epochs=2"}), HasSubstr("--num_batches"));
  EXPECT_THAT(bench_refusal({"--data_dir=d"}), HasSubstr("synthetic"));
  EXPECT_THAT(bench_refusal({"--max_steps=9"}), HasSubstr("write --num_batches=N"));
  EXPECT_THAT(bench_refusal({"--train_dir=d"}), HasSubstr("such as mnist"));
  EXPECT_THAT(bench_refusal({"--print_training_accuracy"}), HasSubstr("such as mnist"));
}

// The error of each spelling for a value that it does not take.
std::vector<std::string> refusals_of(const FlagDefaults& program) {
  std::vector<std::string> texts;
  for (const FlagSpelling& spelling : tf_spellings(program))
    for (const char* value : {"true", "false", "x", "horovod", "psgpu#3", "pscpu#2", "1"}) try {
        WrittenFlags line;
        line.add({"devices", "cpu:4", ""});
        line.add({"num_epochs", "2", "(epochs)"});
        spelling.translate({spelling.name, value, "(this)"}, line);
      } catch (const FlagError& error) {
        texts.emplace_back(error.what());
      }
  return texts;
}

TEST(TfSpellings, NameNoFlagThatTheProgramLacks) {
  const std::regex flag("--([a-z_0-9]+)");
  for (const FlagDefaults& program :
       {FlagDefaults{.program = "trains"}, FlagDefaults{.program = "own", .reads_files = false},
        FlagDefaults{.program = "bench", .reads_files = false, .benchmark = true}}) {
    FlagParser parser("", program.program);
    std::string model, num_batches;
    if (program.benchmark) {  // for train_bench
      parser.add("--model", model, "NAME", "to train");
      parser.add("--num_batches", num_batches, "N", "steps");
    }
    const TrainFlagSet set(parser, program);
    const std::vector<const char*> help{"--help"};
    const std::string known = parser.parse(help);
    const std::vector<std::string> refusals = refusals_of(program);
    EXPECT_GT(refusals.size(), 30u);
    for (const std::string& text : refusals)
      for (std::sregex_iterator named(text.begin(), text.end(), flag), end; named != end; ++named)
        EXPECT_NE(known.find(cat("\n  ", named->str(), " ")), known.npos)
            << program.program << ": " << text;
  }
}

TEST(TfSpellings, AreListedByHelpIfTheyStandForSomething) {
  const std::string help = parse({"--help"}).help;
  for (const char* part : {"As in tf_cnn_benchmarks", "--num_gpus N", "--variable_update MODE",
                           "--all_reduce_spec SPEC", "--local_parameter_device", "--use_fp16"})
    EXPECT_THAT(help, HasSubstr(part));
  for (const char* part : {"--worker_hosts", "--data_format", "--rmsprop_decay"})
    EXPECT_THAT(help, Not(HasSubstr(part)));
}

}  // namespace tf_spellings_test
}  // namespace belfry
