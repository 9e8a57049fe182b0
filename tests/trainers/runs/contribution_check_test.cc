// A process whose gradients are wrong is found by another one, which computes them again.
#include "belfry/trainers/runs/contribution_check.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "belfry/framework/base/text.h"
#include "belfry/ops/shapes/constants.h"
#include "belfry/tests/framework/framework_test_support.h"
#include "belfry/tests/support/process_threads.h"
#include "belfry/tests/trainers/core/small_problem.h"
#include "belfry/tests/trainers/data/idx_files.h"
#include "belfry/trainers/core/trainer.h"
#include "belfry/trainers/data/length_buckets.h"
#include "belfry/trainers/data/sample_stream.h"
#include "belfry/trainers/util/hash.h"
#include "belfry/trainers/util/option_error.h"

namespace belfry {
namespace contribution_check_test {

using test::message_of;
using ::testing::AllOf;
using ::testing::Each;
using ::testing::HasSubstr;

constexpr int kBatch = 8, kSteps = 10;  // an epoch

// The data of one process, in which a bit of a sample has flipped after they were compared.
class FlippedData final : public Dataset {
 public:
  FlippedData(std::int64_t samples, std::int64_t flipped)
      : data_(smooth_data(samples)), flipped_(flipped) {}
  std::vector<Field> signature() const override { return data_->signature(); }
  std::int64_t size() const override { return data_->size(); }
  void gather(std::span<const std::int64_t> indices,
              std::span<std::byte* const> out) const override {
    data_->gather(indices, out);
    for (std::size_t i = 0; i < indices.size(); ++i)
      if (indices[i] == flipped_) out[0][i * 4 * sizeof(double) + 5] ^= std::byte{64};
  }
  std::string describe() const override { return data_->describe(); }

 private:
  std::unique_ptr<Dataset> data_;
  std::int64_t flipped_;
};

struct Case {
  int processes = 2, devices = 1;
  std::int64_t every = 1;
  ModelFunction model = smooth_model;
  int batches_per_step = 1;
  std::int64_t flipped = -1;  // a sample, in rank 1
  bool checks = true;
};

Output model_with_dropout(Tower& tower, Output x, Output y) {
  const Output hidden = dropout(tower, tanh(dense(tower, "fc0", x, {.units = 5})), 0.5);
  return reduce_mean(square(dense(tower, "fc1", hidden, {.units = 1}) - y));
}

Output normalised(Tower& tower, Output x, Output y, bool synchronised) {
  const Output hidden = tanh(batch_norm(tower, "bn", dense(tower, "fc0", x, {.units = 5}),
                                        {.synchronised = synchronised}));
  return reduce_mean(square(dense(tower, "fc1", hidden, {.units = 1}) - y));
}

// The error, or the hash of the state, of each process.
std::vector<std::string> train(const Case& one) {
  std::vector<std::string> all(static_cast<std::size_t>(one.processes));
  test::run_processes(one.processes, [&](const std::shared_ptr<Processes>& processes) {
    const std::int64_t samples =
        std::int64_t{kBatch} * one.processes * one.devices * one.batches_per_step * kSteps;
    std::unique_ptr<Dataset> data = smooth_data(samples);
    if (processes->rank() == 1) data = std::make_unique<FlippedData>(samples, one.flipped);
    TrainerOptions options{.model = one.model,
                           .optimizer = adam(0.05),
                           .devices = cpus(one.devices),
                           .aggregation = {.allreduce = "collective"},
                           .batch_size = kBatch,
                           .batches = {.gradient_accumulation_steps = one.batches_per_step},
                           .session = {.threads = 1, .processes = processes}};
    if (one.checks) {
      options.contributions_every = {one.every};
      options.callbacks = {std::make_shared<ContributionCheck>(one.every)};
    }
    std::string& own = all[static_cast<std::size_t>(processes->rank())];
    try {
      Trainer trainer(find_trainer("replicated"), std::move(options), *data);
      trainer.train();
      EXPECT_EQ(trainer.steps(), kSteps);
      own = state_hash(trainer.session(), trainer.graph());
    } catch (const CorruptionError& error) {
      own = error.what();
      EXPECT_EQ(error.fields().kind, ErrorKind::kCorrupted);
    } catch (const OptionError& error) {
      own = error.what();
    }
  });
  return all;
}

TEST(ContributionCheck, FindsNothingInHealthyRuns) {
  const auto without_sync = [](Tower& tower, Output x, Output y) {
    return normalised(tower, x, y, false);
  };
  for (Case one : std::vector<Case>{{},
                                    {.processes = 3, .every = 2},
                                    {.devices = 2},
                                    {.model = model_with_dropout},
                                    {.devices = 2, .model = without_sync},
                                    {.batches_per_step = 2},
                                    {.model = model_with_dropout, .batches_per_step = 3}}) {
    const std::vector<std::string> checked = train(one);
    one.checks = false;
    EXPECT_EQ(checked, train(one)) << one.processes << " x " << one.devices;
  }
}

// Before they train, processes compare the samples at both ends alone.
TEST(ContributionCheck, FindsRowsThatOneProcessReadsOtherwise) {
  int found = 0;
  for (const std::int64_t sample : {70, 75, 80, 85}) {
    const std::vector<std::string> all = train({.flipped = sample});
    if (!all[0].starts_with("in step")) continue;
    ++found;
    EXPECT_THAT(all, Each(AllOf(HasSubstr(" contributed another gradient of '"),
                                HasSubstr("rank 0 on "), HasSubstr("rank 1 on "))));
  }
  EXPECT_EQ(found, 4);  // rank 1 contributes it, or computes it for rank 0
}

// Sequences of up to 8 numbers.
Output model_of_lengths(Tower& tower, Output x, Output length) {
  const Output mask = sequence_mask(length, x.shape()[1], DType::kF64);
  const Output hidden =
      tanh(dense(tower, "fc", reduce_sum(x * mask, {1}, ReducedAxes::kKept), {.units = 3}));
  return reduce_mean(square(dense(tower, "out", hidden, {.units = 1})));
}

TEST(ContributionCheck, ChecksBatchesOfEachLength) {
  constexpr std::int64_t kSamples = 64, kLongest = 8;
  std::vector<double> x;
  std::vector<std::int32_t> lengths;
  for (std::int64_t i = 0; i < kSamples; ++i) {
    lengths.push_back(static_cast<std::int32_t>(1 + i % kLongest));
    for (std::int64_t t = 0; t < kLongest; ++t)
      x.push_back(std::sin(static_cast<double>(5 * i + 3 * t)));
  }
  test::run_processes(2, [&](const std::shared_ptr<Processes>& processes) {
    const std::unique_ptr<Dataset> data =
        bucket_by_length(std::make_unique<TensorDataset>(
                             std::vector<TensorDataset::Source>{
                                 {"x", Tensor({kSamples, kLongest}, x), DType::kF64, {kLongest}},
                                 {"length", Tensor({kSamples}, lengths), DType::kI32, {}}},
                             "sequences"),
                         "length", {4, kLongest});
    TrainerOptions options{.model = model_of_lengths,
                           .optimizer = adam(0.05),
                           .devices = cpus(1),
                           .aggregation = {.allreduce = "collective"},
                           .batch_size = 4,
                           .session = {.threads = 1, .processes = processes}};
    options.contributions_every = {1};
    options.callbacks = {std::make_shared<ContributionCheck>(1)};
    Trainer trainer(find_trainer("replicated"), std::move(options), *data);
    ASSERT_EQ(trainer.built().batches().forms().size(), 2U);
    trainer.train();
    EXPECT_EQ(trainer.steps(), kSamples / 8);
  });
}

class EndlessStream final : public SampleStream {
 public:
  bool next(const SampleFields& to) override {
    to.get<double>(0)[0] = std::sin(static_cast<double>(number_++));
    return true;
  }

 private:
  int number_ = 0;
};

TEST(ContributionCheck, RefusesStreams) {
  test::run_processes(2, [&](const std::shared_ptr<Processes>& processes) {
    const std::unique_ptr<Dataset> data =
        stream_samples({.fields = {{"x", DType::kF64, {4}}, {"y", DType::kF64, {1}}},
                        .open = [] { return std::make_unique<EndlessStream>(); },
                        .buffer = 16});
    TrainerOptions options{.model = smooth_model,
                           .optimizer = adam(0.05),
                           .devices = cpus(1),
                           .batch_size = 4,
                           .max_steps = 4,
                           .session = {.threads = 1, .processes = processes}};
    options.contributions_every = {1};
    options.callbacks = {std::make_shared<ContributionCheck>(1)};
    Trainer trainer(find_trainer("replicated"), std::move(options), *data);
    EXPECT_THAT(message_of<OptionError>([&] { trainer.train(); }),
                HasSubstr("the training data are a stream, which is read once"));
  });
}

TEST(ContributionCheck, SaysWhyItCannotWork) {
  EXPECT_THAT(train({.model = [](Tower& tower, Output x,
                                 Output y) { return normalised(tower, x, y, true); }}),
              Each(HasSubstr("batch norm is synchronised")));
  EXPECT_THAT(train({.model =
                         [](Tower& tower, Output x, Output y) {
                           EXPECT_GE(tower.index(), 0);
                           return smooth_model(tower, x, y);
                         }}),
              Each(HasSubstr("the tower function asks which tower it builds")));
  EXPECT_THROW(ContributionCheck(0), InvalidArgument);
}

}  // namespace contribution_check_test
}  // namespace belfry
