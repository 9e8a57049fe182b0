// Runs that resume with other settings. They reach the same bits without a message, or other bits
// with one.
#include <array>
#include <fstream>

#include "belfry/framework/base/text.h"
#include "belfry/framework/core_ops/initializers.h"
#include "belfry/ops/matmul.h"
#include "belfry/tests/support/sanitizers.h"
#include "belfry/tests/support/stand_in_gpus.h"
#include "belfry/tests/trainers/program/run_support.h"
#include "belfry/tests/trainers/program/train_support.h"
#include "belfry/trainers/core/training_checkpoint.h"

namespace belfry {
namespace resume_bits_test {

using testing::HasSubstr;
using testing::Not;

using Flags = std::vector<std::string>;

constexpr char kOtherBits[] = "resume: not the same bits because ";

Recipe adam_recipe() {
  Recipe recipe = small_recipe();
  recipe.optimizer = adam(0.01);
  recipe.epochs = 9;
  return recipe;
}

template <class Build>
Recipe recipe_with(const Build& model) {
  Recipe recipe = adam_recipe();
  recipe.model = model;
  return recipe;
}

// Batch norm over each tower.
Recipe normed_recipe() {
  return recipe_with([](Tower& tower, Output x, Output y) {
    const Output hidden = batch_norm(tower, "bn", dense(tower, "fc0", x, {.units = 5}));
    return reduce_mean(square(dense(tower, "fc1", tanh(hidden), {.units = 1}) - y));
  });
}

Recipe decaying_recipe() {
  return recipe_with([](Tower& tower, Output x, Output y) {
    const Output loss = smooth_model(tower, x, y);
    return loss + reduce_sum(square(tower.trainables()[0])) * 0.01;
  });
}

Recipe summing_recipe() {
  return recipe_with([](Tower& tower, Output x, Output y) {
    return reduce_sum(square(dense(tower, "fc", x, {.units = 1}) - y)) / 16.0;
  });
}

// Variables of f32, for 16-bit types, and large enough to be packed into three.
Recipe f32_recipe() {
  Recipe recipe = recipe_with([](Tower& tower, Output x, Output y) {
    const Output hidden = tanh(dense(tower, "fc0", x, {.units = 60}));
    const Output last = tanh(dense(tower, "fc1", hidden, {.units = 60}));
    return reduce_mean(square(dense(tower, "fc2", last, {.units = 1}) - y));
  });
  recipe.data = [](bool train) -> std::unique_ptr<Dataset> {
    const std::int64_t rows = train ? 70 : 10;
    std::vector<float> x, y;
    for (std::int64_t i = 0; i < 4 * rows; ++i) x.push_back(std::sin(static_cast<float>(i)));
    for (std::int64_t i = 0; i < rows; ++i) y.push_back(std::cos(static_cast<float>(i)));
    return std::make_unique<TensorDataset>(
        std::vector<TensorDataset::Source>{{"x", Tensor({rows, 4}, x), DType::kF32, {4}},
                                           {"y", Tensor({rows, 1}, y), DType::kF32, {1}}},
        "waves");
  };
  return recipe;
}

// A layer over all towers stands before a variable that is used twice.
Recipe twice_recipe() {
  return recipe_with([](Tower& tower, Output x, Output y) {
    const Output in = batch_norm(tower, "bn", x, {.synchronised = true});
    const Variable w = variable(tower.graph(), "w", {4, 4},
                                {.dtype = DType::kF64, .initializer = init::he_normal()});
    const Output hidden = tanh(matmul(tanh(matmul(in, w)), w));
    return reduce_mean(square(reduce_mean(hidden, {1}) - reduce_mean(y, {1})));
  });
}

class ResumeBits : public TrainTest {
 protected:
  ResumeBits() { std::filesystem::remove_all(folder_); }
  ~ResumeBits() override { std::filesystem::remove_all(folder_); }

  static Flags joined(Flags flags, const Flags& more) {
    flags.insert(flags.end(), more.begin(), more.end());
    return flags;
  }
  // Runs three steps and saves.
  TrainResult save(const Flags& flags, const Recipe& recipe, const std::string& name = "a") {
    return run_train(
        joined({"--max_steps=3", "--resume=never", "--overwrite", "--run_dir=" + at(name)}, flags),
        recipe);
  }
  // Runs three more steps.
  TrainResult go_on(const Flags& flags, const Recipe& recipe, const std::string& name = "a") {
    return run_train(
        joined({"--max_steps=6", "--resume=" + at(name), "--json=" + json_.string()}, flags),
        recipe);
  }
  std::string hash() const { return report()["state_hash"]; }
  std::string at(const std::string& name) {
    std::filesystem::create_directories(folder_);
    return folder_ + "/" + name;
  }
  std::string never_stopped(const Flags& flags, const Recipe& recipe) {
    EXPECT_EQ(run_train(joined({"--max_steps=6", "--json=" + json_.string()}, flags), recipe).code,
              0);
    return hash();
  }

  const std::string folder_ = path(".saved");
};

// Settings that may change without changing a bit, at 16 samples in 8 shards.
const std::vector<Flags>& equal_modes() {
  static const std::vector<Flags> all{
      {"--devices=cpu:1"},
      {"--devices=cpu:2", "--allreduce=naive"},
      {"--devices=cpu:4", "--allreduce=collective", "--bucket_mb=0"},
      {"--devices=cpu:8", "--allreduce=hierarchical", "--threads=3"},
      {"--devices=cpu:2", "--trainer=parameter_server"},
      {"--devices=cpu:4", "--allreduce=shuffle", "--gradient_repacking=2"},
      {"--devices=cpu:1", "--trainer=replicated", "--threads=2"},
      {"--devices=cpu:8", "--allreduce=naive_cpu", "--fuse=0"},
      {"--devices=cpu:2", "--allreduce=halving_doubling"},
      {"--devices=cpu:4", "--share_replicas=0", "--small_tensors_kb=1"},
      {"--devices=cpu:8", "--trainer=parameter_server", "--parameter_device=cpu"},
      {"--devices=cpu:2", "--allreduce=collective#2", "--bucket_mb=0.0001"},
      {"--devices=cpu:4", "--allreduce=naive:100:shuffle", "--threads=1"},
      {"--devices=cpu:1", "--allreduce=ring", "--trainer=replicated"},
      {"--devices=cpu:8", "--allreduce=halving_doubling", "--threads=4"},
      {"--devices=cpu:4", "--trainer=parameter_server", "--fuse=0"},
      {"--devices=cpu:1", "--trainer=async"},
      {"--devices=cpu:2", "--share_replicas=0", "--fuse=0", "--threads=1"},
      {"--devices=cpu:8", "--gradient_repacking=3"},
      {"--devices=cpu:4", "--allreduce=hierarchical", "--bucket_mb=1"},
  };
  return all;
}

class ResumeToEqualBits : public ResumeBits {
 protected:
  void run(const std::vector<std::pair<std::size_t, std::size_t>>& pairs) {
    const Recipe recipe = f32_recipe();
    const std::string expected =
        never_stopped({"--devices=cpu:1", "--global_batch_size=16", "--shards=8"}, recipe);
    std::set<std::size_t> saved;
    for (const auto& [from, to] : pairs) {
      const Flags &before = equal_modes()[from], &now = equal_modes()[to];
      SCOPED_TRACE(cat(join(before, " "), " -> ", join(now, " ")));
      if (saved.insert(from).second) {
        const TrainResult done =
            save(joined({"--global_batch_size=16", "--shards=8"}, before), recipe, cat(from));
        ASSERT_EQ(done.code, 0) << done.error;
      }
      const TrainResult done = go_on(now, recipe, cat(from));
      ASSERT_EQ(done.code, 0) << done.error;
      EXPECT_THAT(done.error, Not(HasSubstr("not the same bits")));
      EXPECT_EQ(hash(), expected);
    }
  }
};

TEST_F(ResumeToEqualBits, FromEachWayToTwoOthers) {
  const std::size_t n = equal_modes().size();
  std::vector<std::pair<std::size_t, std::size_t>> pairs;
  for (std::size_t i = 0; i < n; i += kSanitized ? 4 : 1)
    for (const std::size_t by : {1, 7}) pairs.emplace_back(i, (i + by) % n);
  EXPECT_GE(pairs.size(), kSanitized ? 10u : 40u);
  run(pairs);
}

// The program itself would choose another number of shards.
TEST_F(ResumeToEqualBits, KeepTheShardsOfABatchThatIsSaidAgain) {
  const Recipe recipe = f32_recipe();
  const Flags asked{"--devices=cpu:1", "--global_batch_size=16", "--shards=8"};
  const std::string expected = never_stopped(asked, recipe);
  const TrainResult saved = save(asked, recipe, "asked");
  ASSERT_EQ(saved.code, 0) << saved.error;
  for (const Flags& now : {Flags{"--devices=cpu:2", "--global_batch_size=16"},
                           Flags{"--devices=cpu:4", "--batch_size=4"}}) {
    const TrainResult done = go_on(now, recipe, "asked");
    ASSERT_EQ(done.code, 0) << done.error;
    EXPECT_THAT(done.error, Not(HasSubstr("not the same bits"))) << join(now, " ");
    EXPECT_EQ(hash(), expected) << join(now, " ");
  }
}

TEST_F(ResumeToEqualBits, LongFromEachWayToEachOther) {
  std::vector<std::pair<std::size_t, std::size_t>> pairs;
  for (std::size_t i = 0; i < equal_modes().size(); ++i)
    for (std::size_t j = 0; j < equal_modes().size(); ++j) pairs.emplace_back(i, j);
  run(pairs);
}

// Settings that change the bits. But the way in which they are carried out does not.
TEST_F(ResumeBits, AreEqualWhereTheSameWayGoesOn) {
  struct Case {
    Recipe recipe;
    Flags all, before, now;
  };
  const std::vector<Case> cases{
      {normed_recipe(), {"--devices=cpu:2"}, {"--allreduce=naive"}, {"--threads=1"}},
      {decaying_recipe(), {"--devices=cpu:4"}, {}, {"--trainer=parameter_server"}},
      {adam_recipe(), {"--devices=cpu:3", "--global_batch_size=24"}, {}, {"--allreduce=shuffle"}},
      {adam_recipe(), {"--devices=cpu:4", "--allreduce=ring"}, {}, {"--threads=3"}},
      {adam_recipe(), {"--devices=cpu:2", "--trainer=async"}, {}, {"--parameter_device=cpu"}},
      {f32_recipe(), {"--devices=cpu:2", "--precision=f16"}, {}, {"--allreduce=naive"}},
      {adam_recipe(), {"--devices=cpu:2", "--uneven=weight"}, {}, {"--allreduce=naive_cpu"}},
      {twice_recipe(), {"--devices=cpu:2"}, {}, {"--allreduce=naive"}},
  };
  for (const Case& c : cases) {
    SCOPED_TRACE(join(joined(c.all, c.now), " "));
    const std::string expected = never_stopped(joined(c.all, c.before), c.recipe);
    EXPECT_EQ(save(joined(c.all, c.before), c.recipe).code, 0);
    const TrainResult done = go_on(joined(c.all, c.now), c.recipe);
    EXPECT_EQ(done.code, 0) << done.error;
    EXPECT_THAT(done.error, Not(HasSubstr("not the same bits")));
    EXPECT_EQ(hash(), expected);
  }
}

struct Told {
  const char* name;
  Recipe recipe;
  Flags before, now;
  std::string why;
};

std::vector<Told> told_changes() {
  const Flags ring{"--devices=cpu:4", "--global_batch_size=16", "--allreduce=ring"};
  const auto ring_and = [&](const char* flag) {
    Flags flags = ring;
    flags.emplace_back(flag);
    return flags;
  };
  const Flags two{"--devices=cpu:2", "--global_batch_size=16", "--shards=8"};
  const auto two_and = [&](std::initializer_list<const char*> more) {
    Flags flags = two;
    flags.insert(flags.end(), more.begin(), more.end());
    return flags;
  };
  const Recipe adams = adam_recipe();
  return {
      {"to ring",
       adams,
       two,
       {"--devices=cpu:2", "--allreduce=ring"},
       "gradients were combined by the canonical sum and are now combined by the strategy ring "
       "over "
       "2 devices, in buckets of 4 MiB"},
      {"from ring",
       adams,
       two_and({"--allreduce=ring"}),
       {"--devices=cpu:2"},
       "by the strategy ring over 2 devices, in buckets of 4 MiB and are now combined by the "
       "canonical sum"},
      {"ring over fewer",
       adams,
       ring_and("--shards=8"),
       {"--devices=cpu:2", "--allreduce=ring"},
       "ring over 4 devices, in buckets of 4 MiB and are now combined by the strategy ring over 2"},
      {"ring to one device",
       adams,
       ring_and("--shards=8"),
       {"--devices=cpu:1"},
       "are now combined by the canonical sum"},
      {"ring in other buckets",
       adams,
       ring,
       {"--devices=cpu:4", "--allreduce=ring", "--bucket_mb=0"},
       "are now combined by the strategy ring over 4 devices"},
      {"ring in chunks",
       adams,
       ring,
       {"--devices=cpu:4", "--allreduce=ring#2"},
       "the strategy ring#2"},
      {"ring with packing",
       f32_recipe(),
       ring,
       {"--devices=cpu:4", "--allreduce=ring", "--gradient_repacking=2"},
       "packed into 2"},
      {"ring with small tensors packed",
       adams,
       ring,
       {"--devices=cpu:4", "--allreduce=ring", "--small_tensors_kb=1"},
       "up to 1 KiB packed"},
      {"to async",
       adams,
       two,
       {"--devices=cpu:2", "--trainer=async"},
       "are now combined by the trainer async over 2 devices"},
      {"from async",
       adams,
       two_and({"--trainer=async"}),
       {"--devices=cpu:2"},
       "by the trainer async over 2 devices and are now combined by the canonical sum"},
      {"async over more",
       adams,
       two_and({"--trainer=async"}),
       {"--devices=cpu:4", "--trainer=async"},
       "are now combined by the trainer async over 4"},
      {"from async to parameter_server",
       adams,
       two_and({"--trainer=async"}),
       {"--devices=cpu:2", "--trainer=parameter_server"},
       "by the trainer async over 2 devices"},
      {"async free again",
       adams,
       {"--devices=cpu:2", "--trainer=async", "--async=free"},
       {"--devices=cpu:2", "--trainer=async", "--async=free"},
       "towers that run free of each other give no bits twice"},
      {"async in order after free",
       adams,
       {"--devices=cpu:2", "--trainer=async", "--async=free"},
       {"--devices=cpu:2", "--trainer=async", "--shards=2", "--batch_size=8"},
       "towers that run free of each other give no bits twice"},
      {"batch norm per tower",
       normed_recipe(),
       two,
       {"--devices=cpu:4"},
       "there were 2 devices and are now 4, and bits depend on that: BatchNormTrain 'tower0/bn/"},
      {"a term of the weights",
       decaying_recipe(),
       two,
       {"--devices=cpu:1"},
       "there were 2 devices and are now 1, and bits depend on that: a gradient of Read "
       "'fc0/W/read'"},
      {"a loss that is no mean",
       summing_recipe(),
       two,
       {"--devices=cpu:4"},
       "the loss is no mean over samples"},
      {"three devices to one",
       adams,
       {"--devices=cpu:3", "--global_batch_size=24", "--shards=6"},
       {"--devices=cpu:1"},
       "there were 3 devices and are now 1, and bits depend on that: 6 shards: not a power of two"},
      {"one device to three",
       adams,
       {"--devices=cpu:1", "--global_batch_size=24", "--shards=6"},
       {"--devices=cpu:3"},
       "there were 1 device and are now 3, and bits depend on that: 3 devices: not a power of two"},
      {"f16",
       f32_recipe(),
       two_and({"--precision=f16"}),
       {"--devices=cpu:4", "--precision=f16"},
       "bits depend on that: f16 scales the loss"},
      {"uneven batches",
       adams,
       {"--devices=cpu:2", "--global_batch_size=16", "--uneven=weight", "--shards=8"},
       {"--devices=cpu:4", "--uneven=weight"},
       "bits depend on that: a batch of 6 samples"},
      {"shards that were given",
       adams,
       two,
       {"--devices=cpu:2", "--global_batch_size=16", "--shards=4"},
       "the number of shards (--shards) was 8 and is now 4"},
      {"shards that devices cannot keep",
       adams,
       {"--devices=cpu:2", "--global_batch_size=16", "--shards=2"},
       {"--devices=cpu:4"},
       "the number of shards (--shards) was 2 and is now 4"},
      {"a variable with two uses",
       twice_recipe(),
       two,
       {"--devices=cpu:2", "--trainer=parameter_server"},
       "are now combined by the trainer parameter_server over 2 devices, all uses of a "
       "synchronised "
       "variable at once"},
      {"a rate that follows the length",
       adams,
       two_and({"--lr_schedule=cosine"}),
       {"--devices=cpu:2", "--lr_schedule=cosine"},
       "the learning rate follows the length of the run, which was 3 steps and is now 6"},
      {"another seed", adams, two, {"--devices=cpu:2", "--seed=2"}, "the seed was 1 and is now 2"},
      {"another precision",
       f32_recipe(),
       two,
       {"--devices=cpu:2", "--precision=bf16"},
       "the precision was f32 and is now bf16"},
  };
}

// With another number of devices, the node over all towers is another one.
TEST_F(ResumeBits, AreEqualWhereSynchronisedBatchNormGoesOnOnOtherDevices) {
  const Recipe recipe = recipe_with([](Tower& tower, Output x, Output y) {
    const Output hidden = dense(tower, "fc0", x, {.units = 8});
    const Output normal = batch_norm(tower, "bn", hidden, {.synchronised = true});
    return reduce_mean(square(dense(tower, "fc1", tanh(normal), {.units = 1}) - y));
  });
  const std::string hash_of_all = never_stopped({"--global_batch_size=16", "--shards=8"}, recipe);
  for (const auto& [first, second] : {std::pair(1, 4), {4, 2}, {2, 1}}) {
    const auto flags = [](int devices) {
      return Flags{cat("--devices=cpu:", devices), "--global_batch_size=16", "--shards=8"};
    };
    EXPECT_EQ(save(flags(first), recipe).code, 0);
    const TrainResult rest = go_on(flags(second), recipe);
    EXPECT_EQ(rest.code, 0);
    EXPECT_THAT(rest.error, testing::Not(HasSubstr("not the same bits"))) << first << second;
    EXPECT_EQ(hash(), hash_of_all);
  }
}

TEST_F(ResumeBits, AreToldToDifferWithTheFirstReason) {
  const std::vector<Told> all = told_changes();
  EXPECT_GE(all.size(), 20u);
  for (const Told& change : all) {
    SCOPED_TRACE(change.name);
    const TrainResult saved = save(change.before, change.recipe);
    ASSERT_EQ(saved.code, 0) << saved.error;
    const TrainResult done = go_on(change.now, change.recipe);
    EXPECT_EQ(done.code, 0) << done.error;
    EXPECT_THAT(done.error, HasSubstr(kOtherBits));
    EXPECT_THAT(done.error, HasSubstr(change.why));
  }
}

TEST_F(ResumeBits, AreToldToDifferOnDevicesOfAnotherType) {
  const test::StandInGpus gpus(1);
  const test::UseGpus use(gpus);
  const Flags cpu{"--devices=cpu:2", "--batch_size=8", "--shards=2"};
  const Flags gpu{"--devices=gpu:2", "--batch_size=8", "--logical_gpus=2"};
  const Flags same_gpu = joined(gpu, {"--deterministic"});
  ASSERT_EQ(save(cpu, f32_recipe(), "cpu").code, 0);
  ASSERT_EQ(save(same_gpu, f32_recipe(), "gpu").code, 0);
  EXPECT_THAT(go_on(same_gpu, f32_recipe(), "cpu").error,
              HasSubstr(cat(kOtherBits, "it ran on CPUs and resumes on GPUs")));
  EXPECT_THAT(go_on(cpu, f32_recipe(), "gpu").error,
              HasSubstr(cat(kOtherBits, "it ran on GPUs and resumes on CPUs")));
  EXPECT_THAT(go_on(same_gpu, f32_recipe(), "gpu").error, Not(HasSubstr("not the same bits")));
  EXPECT_THAT(go_on(gpu, f32_recipe(), "gpu").error,
              HasSubstr("GPUs take the fastest algorithms, which need not repeat"));
}

// A cluster of two instruction sets saved step 3.
TEST_F(ResumeBits, AreNotCanonicalIfAPartWasComputedOtherwise) {
  Recipe recipe = adam_recipe();
  recipe.callbacks = {std::make_shared<BeforeStep>(3, [&](Trainer& trainer) {
    snapshot_training(trainer, JsonValue::object().set("arithmetic", "X (rank 0) and Y (rank 1)"))
        .save(at("mixed"));
  })};
  ASSERT_EQ(run_train({"--devices=cpu:2", "--max_steps=4"}, recipe).code, 0);
  const Flags saving{"--devices=cpu:2", "--run_dir=" + at("later")};
  const TrainResult first = go_on(saving, adam_recipe(), "mixed");
  EXPECT_EQ(first.code, 0) << first.error;
  EXPECT_THAT(first.error, HasSubstr(cat(kOtherBits,
                                         "it was saved by X (rank 0) and Y (rank 1) and "
                                         "resumes with Belfry ")));
  EXPECT_EQ(report()["canonical"], false);
  EXPECT_THAT(report()["k_dependent_because"].get<std::string>(),
              HasSubstr("resumed with other bits: it was saved by X (rank 0) and Y (rank 1)"));
  // What it saves notes that, though the same instructions continue.
  const TrainResult second = run_train(
      {"--devices=cpu:2", "--max_steps=8", "--resume=" + at("later"), "--json=" + json_.string()},
      adam_recipe());
  EXPECT_THAT(second.error, Not(HasSubstr("not the same bits")));
  EXPECT_EQ(report()["canonical"], false);
}

// By any reason, and by all checkpoints that come after.
TEST_F(ResumeBits, AreNotCanonicalIfAPartWasCombinedOtherwise) {
  for (const Flags& other : {Flags{"--allreduce=ring"}, Flags{"--trainer=async", "--async=free"}}) {
    const std::string run = "--run_dir=" + at(other[0]);
    Flags first{"--devices=cpu:4", "--shards=4", "--max_steps=2", run};
    first.insert(first.end(), other.begin(), other.end());
    ASSERT_EQ(run_train(first, adam_recipe()).code, 0);
    for (const char* steps : {"4", "6"}) {
      const TrainResult resumed =
          run_train({"--devices=cpu:4", "--shards=4", run, cat("--max_steps=", steps),
                     "--json=" + json_.string()},
                    adam_recipe());
      EXPECT_EQ(resumed.code, 0) << resumed.error;
      EXPECT_EQ(report()["canonical"], false) << other[0] << " until " << steps;
      EXPECT_THAT(report()["k_dependent_because"].get<std::string>(),
                  HasSubstr("this run was resumed with other bits: "));
    }
  }
}

}  // namespace resume_bits_test
}  // namespace belfry
