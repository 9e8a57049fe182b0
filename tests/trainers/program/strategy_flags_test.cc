// Flags about training towers together: trainer, strategy, packing, buckets, async.
#include <algorithm>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "belfry/framework/base/text.h"
#include "belfry/tests/framework/device/fake_gpus.h"
#include "belfry/tests/support/stand_in_gpus.h"
#include "belfry/tests/trainers/program/parsed_flags.h"

namespace belfry {
namespace strategy_flags_test {

using testing::AllOf;
using testing::HasSubstr;
using testing::MatchesRegex;
using testing::StartsWith;

TEST(TrainerFlag, FollowsTheNumberOfDevices) {
  EXPECT_EQ(parse({"--devices=cpu:1"}).kind, "simple");
  EXPECT_EQ(parse({"--devices=cpu:1"}).trainer.aggregation.allreduce, "");
  EXPECT_EQ(parse({"--devices=/cpu:3"}).kind, "simple");
  EXPECT_EQ(parse({"--devices=cpu:3"}).kind, "replicated");
  EXPECT_EQ(parse({"--devices=cpu:1", "--trainer=replicated"}).trainer.aggregation.allreduce,
            "collective");
  EXPECT_EQ(parse({"--trainer=parameter_server"}).trainer.aggregation.allreduce, "colocate");
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
  EXPECT_THAT(refusal({"--trainer=replicated", "--allreduce=colocate"}),
              AllOf(HasSubstr("--trainer=replicated"), HasSubstr("--allreduce=colocate")));
  for (const char* strategy : {"collective", "naive", "hierarchical"}) {
    const std::string flag = std::string("--allreduce=") + strategy;
    EXPECT_THAT(refusal({"--trainer=parameter_server", flag.c_str()}),
                AllOf(HasSubstr("--trainer=parameter_server"), HasSubstr(flag)));
  }
  EXPECT_THAT(refusal({"--trainer=parameter_server", "--gradient_repacking=2"}),
              AllOf(HasSubstr("--trainer=parameter_server"), HasSubstr("--gradient_repacking=2")));
  EXPECT_THAT(refusal({"--devices=cpu:1", "--trainer=simple", "--gradient_repacking=2"}),
              AllOf(HasSubstr("--trainer=simple"), HasSubstr("--gradient_repacking=2")));
}

TEST(TrainerFlag, OfAnyKindIsTakenBesideFuse) {
  for (const char* trainer : {"--trainer=parameter_server", "--trainer=async"})
    for (const char* flag : {"--fuse"}) {
      EXPECT_TRUE(parse({cat(flag, "=1").c_str(), trainer}).trainer.session.fuse);
      EXPECT_FALSE(parse({cat(flag, "=0").c_str(), trainer}).trainer.session.fuse);
    }
  EXPECT_TRUE(parse({"--devices=cpu:1"}).trainer.session.fuse);
  EXPECT_FALSE(parse({"--devices=cpu:1", "--fuse=0"}).trainer.session.fuse);
}

TEST(TrainerFlag, IsRefusedWithFlagsThatItHasNoUseFor) {
  const char* const share = "--share_replicas=1";
  for (const char* trainer : {"--trainer=parameter_server", "--trainer=async"})
    EXPECT_EQ(refusal({share, trainer}),
              cat(share, " has no use for ", trainer, ", which has no replicas; leave it out"));
  EXPECT_EQ(refusal({share, "--devices=cpu:1", "--trainer=simple"}),
            cat(share, " has no use for --trainer=simple, which has no replicas; leave it out"));
  EXPECT_EQ(parse({share, "--devices=cpu:1", "--trainer=replicated"}).trainer.devices.size(), 1u);
  EXPECT_FALSE(parse({"--trainer=async", "--share_replicas=0"}).trainer.session.share_replicas);
  EXPECT_EQ(
      refusal({"--tower_weights=3", "--devices=cpu:1", "--trainer=simple"}),
      "--tower_weights=3 has no use for --trainer=simple, which takes one device; leave it out");
  EXPECT_EQ(parse({"--tower_weights=3", "--devices=cpu:1", "--trainer=replicated"})
                .trainer.batches.tower_weights.size(),
            1u);
}

// Otherwise a sweep over numbers of devices could not begin with one.
TEST(OneDevice, TrainsWithoutWhatSaysHowToCombine) {
  const TrainFlags plain = parse({"--devices=cpu:1"});
  for (const std::vector<const char*>& asked :
       std::vector<std::vector<const char*>>{{"--allreduce=ring"},
                                             {"--allreduce=hierarchical", "--bucket_mb=2"},
                                             {"--allreduce=auto", "--links=l", "--auto_any"},
                                             {"--allreduce=nccl"},
                                             {"--gradient_repacking=4"},
                                             {"--small_tensors_kb=4", "--share_replicas=1"}}) {
    std::vector<const char*> arguments{"--devices=cpu:1"};
    arguments.insert(arguments.end(), asked.begin(), asked.end());
    testing::internal::CaptureStderr();
    const TrainFlags flags = parse(arguments);
    const std::string log = testing::internal::GetCapturedStderr();
    EXPECT_EQ(flags.kind, "simple");
    EXPECT_EQ(flags.trainer.aggregation.allreduce, "");
    EXPECT_EQ(flags.trainer.aggregation.gradient_repacking, 0);
    EXPECT_EQ(flags.trainer.aggregation.small_tensors_kb, 0);
    EXPECT_EQ(flags.trainer.aggregation.bucket_mb, plain.trainer.aggregation.bucket_mb);
    EXPECT_THAT(log, AllOf(HasSubstr(asked[0]), HasSubstr("for --devices=cpu:1"))) << asked[0];
    EXPECT_EQ(std::ranges::count(log, '\n'), 1) << log;
  }
  EXPECT_THAT(refusal({"--devices=cpu:1", "--allreduce=rong"}), HasSubstr("did you mean 'ring'?"));
  EXPECT_THAT(refusal({"--devices=cpu:1", "--gradient_repacking=x"}), HasSubstr("whole number"));
}

TEST(OneDevice, OfTheReplicatedTrainerLeavesStrategiesOutThatNeedMore) {
  testing::internal::CaptureStderr();
  EXPECT_EQ(parse({"--devices=cpu:1", "--trainer=replicated", "--allreduce=hierarchical"})
                .trainer.aggregation.allreduce,
            "collective");
  EXPECT_THAT(testing::internal::GetCapturedStderr(),
              HasSubstr("--allreduce=hierarchical has no use for --devices=cpu:1"));
  EXPECT_EQ(parse({"--devices=cpu:1", "--trainer=replicated", "--allreduce=ring"})
                .trainer.aggregation.allreduce,
            "ring");
}

TEST(ParameterDeviceFlag, IsOfTrainersThatSpreadVariables) {
  EXPECT_FALSE(parse({"--trainer=parameter_server"}).trainer.parameters_on_cpu);
  EXPECT_FALSE(parse({"--trainer=async", "--parameter_device=spread"}).trainer.parameters_on_cpu);
  EXPECT_TRUE(parse({"--trainer=async", "--parameter_device=cpu"}).trainer.parameters_on_cpu);
  EXPECT_THAT(refusal({"--parameter_device=cpu"}),
              AllOf(HasSubstr("--parameter_device=cpu has no use for --trainer=replicated"),
                    HasSubstr("say --trainer=parameter_server")));
}

TEST(AllreduceFlag, TakesSpecsBySize) {
  for (const char* spec : {"collective:64k:hierarchical", "pscpu:2k:pscpu#2:64k:xring", "ring#2",
                           "shuffle", "naive_cpu", "halving_doubling", "rechd", "psgpu"})
    EXPECT_EQ(parse({"--devices=cpu:4", "--allreduce", spec}).trainer.aggregation.allreduce, spec);
  EXPECT_EQ(parse({"--allreduce=naive-cpu:2k:halving-doubling"}).trainer.aggregation.allreduce,
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
  EXPECT_EQ(flags.trainer.aggregation.allreduce, "auto");
  EXPECT_TRUE(flags.trainer.aggregation.choice.any);
  EXPECT_EQ(flags.links, "l.json");
  const auto buckets = [](const TrainFlags& of) { return of.trainer.aggregation.choice.buckets; };
  EXPECT_EQ(buckets(parse({"--allreduce=auto", "--links=l"})), AutoOptions().buckets);
  EXPECT_EQ(buckets(parse({"--allreduce=auto", "--links=l", "--bucket_mb=0"})),
            std::vector<double>{0});
}

TEST(AutoFlags, AreRefusedWhereNothingIsChosen) {
  EXPECT_EQ(
      refusal({"--links=l.json"}),
      "--links=l.json is for the choice of a strategy; without --allreduce=auto there is none");
  EXPECT_EQ(refusal({"--allreduce=auto", "--auto_any"}),
            "--auto_any is for the choice of a strategy; without --allreduce=auto and --links=FILE "
            "there is none");
  for (const char* flag : {"--links=l.json", "--auto_any"}) {
    EXPECT_THAT(refusal({flag, "--allreduce=naive"}), HasSubstr("without --allreduce=auto"));
    EXPECT_THAT(refusal({flag, "--trainer=parameter_server"}), HasSubstr(flag));
    EXPECT_THAT(refusal({flag, "--resume=c"}), HasSubstr("without --allreduce=auto"));
    EXPECT_THAT(refusal({flag, "--check_equivalence=2"}), HasSubstr("without --allreduce=auto"));
  }
  EXPECT_THAT(refusal({"--allreduce=auto", "--remeasure"}),
              AllOf(HasSubstr("--remeasure"), HasSubstr("`belfry machine`")));
}

TEST(AutoFlags, AreOfTrainersThatHaveAChoice) {
  EXPECT_EQ(refusal({"--trainer=parameter_server", "--allreduce=auto"}),
            "--trainer=parameter_server does not take --allreduce=auto; leave it out, or write "
            "--trainer=replicated");
  EXPECT_THAT(refusal({"--trainer=async", "--allreduce=auto"}),
              AllOf(HasSubstr("combines no gradients"),
                    HasSubstr("--allreduce=auto; leave it out, or write --trainer=replicated")));
  EXPECT_THAT(refusal({"--devices=cpu:2", "--allreduce=colocate"}),
              HasSubstr("--allreduce=colocate; leave it out, or write --trainer=parameter_server"));
  EXPECT_THAT(refusal({"--allreduce=auto#2"}), HasSubstr("takes no number of chunks"));
}

TEST(AutoFlags, LeaveTheDefaultWithoutADescriptionOfTheMachine) {
  const auto allreduce = [](std::initializer_list<const char*> flags) {
    return parse(flags).trainer.aggregation.allreduce;
  };
  EXPECT_EQ(allreduce({"--allreduce=auto", "--dry_run", "--devices=gpu:2", "--links=l"}), "auto");
  EXPECT_EQ(allreduce({"--allreduce=auto", "--dry_run", "--devices=gpu:2"}), "collective");
  EXPECT_EQ(allreduce({"--allreduce=auto"}), "collective");
}

TEST(AllreduceFlag, RefusesWhatThisBuildOrProcessCannotDo) {
  EXPECT_EQ(refusal({"--allreduce=nccl"}),
            "--allreduce=nccl: NCCL needs GPUs, but tower 0 is on CPU:0; use collective "
            "(--devices=cpu:2 has 2)");
  EXPECT_EQ(
      parse({"--dry_run", "--devices=gpu:8", "--allreduce=nccl"}).trainer.aggregation.allreduce,
      "nccl");
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
  EXPECT_EQ(parse({"--small_tensors_kb=4"}).trainer.aggregation.small_tensors_kb, 4);
  EXPECT_EQ(parse({"--small-tensors-kb=0", "--trainer=parameter_server"})
                .trainer.aggregation.small_tensors_kb,
            0);
  EXPECT_THAT(refusal({"--small_tensors_kb=4", "--trainer=parameter_server"}),
              AllOf(HasSubstr("--small_tensors_kb=4"), HasSubstr("--trainer=parameter_server")));
  EXPECT_THAT(refusal({"--small_tensors_kb=4", "--devices=cpu:1", "--trainer=simple"}),
              AllOf(HasSubstr("--small_tensors_kb=4"), HasSubstr("--trainer=simple")));
  EXPECT_THAT(refusal({"--small_tensors_kb=4", "--gradient_repacking=2"}),
              AllOf(HasSubstr("--small_tensors_kb=4"), HasSubstr("--gradient_repacking=2")));
  for (const char* value : {"-1", "x", "1.5", "4k", "99999999999"})
    EXPECT_THAT(refusal({"--small_tensors_kb", value}),
                HasSubstr(std::string("--small_tensors_kb=") + value));
}

TEST(AllreduceFlag, IsNcclByDefaultWhereGpusDoNotReachEachOther) {
  class SeparateGpus : public test::FakeGpus {
   public:
    SeparateGpus() : FakeGpus(4) {}
    bool peer_access(int from, int to) const override { return from / 2 == to / 2; }
    NcclInfo nccl() const override { return {.version = 22800}; }
  };
  const SeparateGpus gpus;
  const test::UseGpus use(gpus);
  const auto strategy = [](std::vector<const char*> flags) {
    return parse(flags).trainer.aggregation.allreduce;
  };
  testing::internal::CaptureStderr();
  EXPECT_EQ(strategy({"--devices=gpu:4"}), "nccl");
  EXPECT_THAT(testing::internal::GetCapturedStderr(),
              HasSubstr("GPU 0 does not reach the memory of GPU 2, so --allreduce=nccl takes the "
                        "place of collective"));
  EXPECT_EQ(strategy({"--devices=gpu:2"}), "collective");
  EXPECT_EQ(strategy({"--devices=gpu:4", "--logical_gpus=2"}), "collective");
  EXPECT_EQ(strategy({"--devices=gpu:4", "--allreduce=naive"}), "naive");
  EXPECT_EQ(strategy({"--devices=cpu:4"}), "collective");
}

TEST(BucketFlag, IsARealNumberOfMebibytes) {
  EXPECT_EQ(parse({"--bucket_mb=0.25"}).trainer.aggregation.bucket_mb, 0.25);
  EXPECT_EQ(parse({"--bucket-mb", "16"}).trainer.aggregation.bucket_mb, 16);
  EXPECT_EQ(parse({"--bucket_mb=0"}).trainer.aggregation.bucket_mb, 0);
  EXPECT_EQ(parse({"--bucket_mb=3", "--trainer=parameter_server"}).trainer.aggregation.bucket_mb,
            3);
  for (const char* flag : {"--bucket_mb=-1", "--bucket_mb=x", "--bucket_mb=nan", "--bucket_mb=inf",
                           "--bucket_mb=4MB", "--bucket_mb=1e300"})
    EXPECT_THAT(refusal({flag}), HasSubstr(flag));
}

TEST(BucketFlag, DependsOnTheTrainerAndOnPacking) {
  EXPECT_EQ(parse({"--trainer=parameter_server"}).trainer.aggregation.bucket_mb, kDefaultBucketMb);
  EXPECT_EQ(parse({"--devices=cpu:1"}).trainer.aggregation.bucket_mb, 0);
  EXPECT_EQ(parse({"--devices=cpu:1", "--bucket_mb=0"}).trainer.aggregation.bucket_mb, 0);
  EXPECT_THAT(refusal({"--devices=cpu:1", "--trainer=simple", "--bucket_mb=2"}),
              AllOf(HasSubstr("--trainer=simple"), HasSubstr("--bucket_mb=2")));
  EXPECT_EQ(parse({"--gradient_repacking=4"}).trainer.aggregation.bucket_mb, 0);
  EXPECT_EQ(parse({"--gradient_repacking=4", "--bucket_mb=0"}).trainer.aggregation.bucket_mb, 0);
  EXPECT_THAT(refusal({"--gradient_repacking=4", "--bucket_mb=2"}),
              AllOf(HasSubstr("--gradient_repacking=4"), HasSubstr("--bucket_mb=2")));
}

TEST(AsyncFlag, IsOrderedUnlessItIsGivenAndForTheAsyncTrainerAlone) {
  EXPECT_EQ(parse({"--trainer=async"}).async(), "ordered");
  EXPECT_EQ(parse({"--trainer=async", "--async=ordered"}).async(), "ordered");
  EXPECT_EQ(parse({"--async=free", "--trainer=async"}).async(), "free");
  EXPECT_EQ(parse({"--trainer=async", "--devices=cpu:1"}).async(), "ordered");
  EXPECT_EQ(parse({"--trainer=async", "--devices=gpu:2", "--dry_run"}).async(), "ordered");
  EXPECT_EQ(refusal({"--trainer=async", "--devices=gpu:2", "--dry_run", "--async=free"}),
            "--async=free with --devices=gpu:2: towers that do not wait for each other run on CPUs "
            "alone; use cpu:N, or --async=ordered");
  EXPECT_EQ(parse({"--trainer=async"}).trainer.aggregation.allreduce, "");
  EXPECT_EQ(parse({"--trainer=replicated"}).async(), "");
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
  EXPECT_EQ(parse({"--devices=cpu:6", "--allreduce=hierarchical"}).trainer.aggregation.allreduce,
            "hierarchical");
}

}  // namespace strategy_flags_test
}  // namespace belfry
