// The strategy nccl on stand-in GPUs.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "belfry/allreduce/strategy.h"
#include "belfry/framework/plan/plan.h"
#include "belfry/framework/run/session.h"
#include "belfry/tests/allreduce/tables.h"
#include "belfry/tests/support/stand_in_communicators.h"

namespace belfry {
namespace nccl_test {

using testing::AllOf;
using testing::HasSubstr;
using testing::Not;

SessionOptions on_gpus(int towers, int logical) {
  return {.device_count = {{"GPU", towers}}, .logical_gpus = logical, .threads = 1};
}

void expect_sums(const TestGradients& gradients, const GradientTable& sums, Session& session,
                 bool mean) {
  std::vector<Fetch> fetches;
  for (int t = 0; t < sums.towers(); ++t)
    for (const Gradient& sum : sums.row(t)) fetches.emplace_back(sum.value);
  const std::vector<Tensor> got = session.run(fetches, std::span<const FeedValue>());
  for (int t = 0; t < sums.towers(); ++t)
    for (int v = 0; v < sums.variables(); ++v) {
      const std::vector<float> wanted = gradients.tree(v, 0, sums.towers());
      const std::span<const float> sum =
          got[static_cast<std::size_t>(t * sums.variables() + v)].data<float>();
      ASSERT_EQ(sum.size(), wanted.size());
      for (std::size_t i = 0; i < sum.size(); ++i) {
        const float one = mean ? wanted[i] / static_cast<float>(sums.towers()) : wanted[i];
        ASSERT_NEAR(sum[i], one, 1e-4 + 1e-5 * std::abs(one)) << t << " " << v << " " << i;
      }
    }
}

TEST(NcclStrategy, CombinesOverAnyGpusPlainPackedAndInBuckets) {
  for (const auto& [physical, logical] : {std::pair{2, 1}, {1, 3}, {3, 2}, {8, 1}}) {
    const int towers = physical * logical;
    const test::StandInGpus present(physical);
    const test::UseGpus use(present);
    for (const Reduction reduction : {Reduction::kSum, Reduction::kMean})
      for (const int way : {0, 1, 2, 3}) {
        const TestGradients gradients(gpus(towers), {{33}, {4, 5}, {}, {0}, {2101}});
        const auto strategy = make_strategy(way == 3 ? "nccl:100:collective" : "nccl");
        const Packing packing{.parts = way == 2 ? 2 : 0, .bucket_mb = way == 1 ? 0.001 : 0};
        const GradientTable sums =
            strategy->reduce(gradients.table(), {.reduction = reduction, .packing = packing});
        Session session(gradients.graph, on_gpus(towers, logical));
        expect_sums(gradients, sums, session, reduction == Reduction::kMean);
      }
  }
}

TEST(NcclStrategy, IsRefusedOnGpusWithoutNccl) {
  test::StandInGpus present(2);
  present.set_nccl({.why_not = "libnccl.so.2 is not found"});
  const auto strategy = make_strategy("nccl");
  EXPECT_EQ(strategy->refusal(gpus(2)), "");  // declared GPUs are planned for another machine
  const test::UseGpus use(present);
  EXPECT_THAT(strategy->refusal(gpus(2)),
              AllOf(HasSubstr("libnccl.so.2 is not found"), HasSubstr("use collective")));
}

TEST(NcclStrategy, NamesTheVariablesOfACollectiveThatFails) {
  const test::StandInGpus present(2);
  const test::UseGpus use(present);
  const TestGradients gradients(gpus(2), {{4}, {3}, {2}});
  const Packing buckets{.bucket_mb = 20.0 / (1 << 20)};  // v2, v1; v0
  const GradientTable sums = make_strategy("nccl")->reduce(gradients.table(), {.packing = buckets});
  std::vector<Fetch> fetches;
  for (int t = 0; t < 2; ++t)
    for (const Gradient& sum : sums.row(t)) fetches.emplace_back(sum.value);
  SessionOptions options = on_gpus(2, 1);
  options.stall_abort_seconds = 1;
  Session session(gradients.graph, options);
  CompiledStep& step = session.prepare(fetches);
  const auto error = [&](auto set_fault) {
    present.nccl_faults().reset();
    set_fault(present.nccl_faults());
    try {
      step.run();
    } catch (const CommError& failure) {
      return std::string(failure.what());
    }
    return std::string("(no CommError)");
  };
  EXPECT_THAT(error([](test::NcclFaults& faults) { faults.fail_at = 1; }),
              AllOf(HasSubstr("combines the gradients of"), HasSubstr("ncclAllReduce failed")));
  // Four calls connect anew.
  const std::string first = error([](test::NcclFaults& faults) { faults.stall_at = 4; });
  EXPECT_THAT(first, AllOf(HasSubstr("'v1', 'v2'"), Not(HasSubstr("'v0'")),
                           HasSubstr("has not finished within 1 s")));
}

}  // namespace nccl_test
}  // namespace belfry
