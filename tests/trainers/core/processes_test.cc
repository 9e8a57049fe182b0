// A training of several processes has the bits of one process with as many devices.
#include <mutex>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "belfry/tests/framework/framework_test_support.h"
#include "belfry/tests/support/process_threads.h"
#include "belfry/tests/trainers/core/small_problem.h"
#include "belfry/trainers/core/trainer_kinds.h"
#include "belfry/trainers/util/hash.h"

namespace belfry {
namespace processes_test {

using ::testing::HasSubstr;

constexpr int kGlobalBatch = 24, kSteps = 6;

struct Trained {
  std::string hash;
  double loss;
  bool operator==(const Trained&) const = default;
};

Trained train(int devices, const std::shared_ptr<Processes>& processes, double bucket_mb) {
  const int towers = devices * (processes ? processes->size() : 1);
  const auto data = smooth_data(5 * kGlobalBatch);
  TrainerOptions options{.model = smooth_model,
                         .optimizer = adam(0.01),
                         .aggregation = {.allreduce = "collective", .bucket_mb = bucket_mb},
                         .batch_size = kGlobalBatch / towers,
                         .epochs = 4,
                         .max_steps = kSteps,
                         .session = {.threads = 1, .processes = processes}};
  options.devices.clear();
  for (int d = 0; d < devices; ++d) options.devices.push_back(DeviceSpec::local("CPU", d));
  Trainer trainer(find_trainer("replicated"), std::move(options), *data);
  trainer.train();
  return {params_hash(trainer.session(), trainer.graph()), trainer.metric("loss")};
}

class Layouts : public testing::TestWithParam<std::tuple<int, int>> {};

TEST_P(Layouts, GiveOneHash) {
  const auto [size, devices] = GetParam();
  for (const double bucket_mb : {0.0, 1e-4, 25.0}) {
    const Trained alone = train(size * devices, nullptr, bucket_mb);
    std::mutex mutex;
    std::vector<Trained> all;
    test::run_processes(size, [&](const std::shared_ptr<Processes>& processes) {
      const Trained one = train(devices, processes, bucket_mb);
      const std::lock_guard lock(mutex);
      all.push_back(one);
    });
    EXPECT_THAT(all, testing::Each(alone)) << bucket_mb;
    EXPECT_EQ(std::ssize(all), size);
  }
}

// 3 x 2 and 2 x 3 have processes whose towers are no node of the tree.
INSTANTIATE_TEST_SUITE_P(Processes, Layouts,
                         testing::Values(std::tuple(2, 1), std::tuple(2, 2), std::tuple(3, 1),
                                         std::tuple(3, 2), std::tuple(2, 3), std::tuple(4, 2)));

TEST(Processes, AnErrorInOneEndsTheOthers) {
  EXPECT_THAT(message_of<CommError>([&] {
                test::run_processes(2, [&](const std::shared_ptr<Processes>& processes) {
                  if (processes->rank() == 1) return processes->end_others("no memory");
                  train(1, processes, 0);
                });
              }),
              testing::AllOf(HasSubstr("rank 1, "), HasSubstr("no memory")));
}

TEST(Processes, OtherStrategiesAreRefused) {
  EXPECT_THAT(message_of<InvalidArgument>([&] {
                test::run_processes(2, [&](const std::shared_ptr<Processes>& processes) {
                  const auto data = smooth_data(kGlobalBatch);
                  TrainerOptions options{.model = smooth_model,
                                         .optimizer = sgd(0.1),
                                         .aggregation = {.allreduce = "ring"},
                                         .batch_size = kGlobalBatch / 2,
                                         .session = {.processes = processes}};
                  Trainer(find_trainer("replicated"), std::move(options), *data);
                });
              }),
              HasSubstr("combined by strategy collective"));
}

}  // namespace processes_test
}  // namespace belfry
