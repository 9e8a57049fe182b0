#include "belfry/framework/run/output_watch.h"

#include "belfry/framework/core_ops/placeholder.h"
#include "belfry/framework/run/session.h"
#include "belfry/ops/arithmetic.h"
#include "belfry/ops/relu.h"
#include "belfry/tests/framework/framework_test_support.h"
#include "belfry/towers/replicate.h"

namespace belfry {
namespace output_watch_test {

// Two towers of two ops, on two shards each.
class OutputHashesTest : public testing::Test {
 protected:
  OutputHashesTest() {
    replicate(graph, cpus, VariablePolicy::kReplicated, [&](Tower&) {
      inputs.push_back(placeholder(graph, "x", DType::kF32, {kUnknownSize, 2}));
      results.push_back(add(relu(inputs.back()), inputs.back()));
    });
  }

  std::map<int, OutputHashes::Named> hashes(float changed) {
    const Tensor same({4, 2}, std::vector<float>{1, 2, 3, 4, 5, 6, 7, 8});
    const Tensor other({4, 2}, std::vector<float>{1, 2, 3, 4, 5, 6, changed, 8});
    CompiledStep& step = session.prepare({results[0], results[1]},
                                         {{inputs[0], same.shape()}, {inputs[1], same.shape()}});
    OutputHashes watch;
    const Tensor feeds[] = {same, other};
    step.run(feeds, {.watch = &watch});
    return watch.by_tower();
  }

  Graph graph;
  const std::vector<DeviceSpec> cpus{DeviceSpec::local("CPU", 0), DeviceSpec::local("CPU", 1)};
  std::vector<Output> inputs, results;
  Session session{graph, {.device_count = {{"CPU", 2}}, .shards_per_device = 2}};
};

TEST_F(OutputHashesTest, AreThoseOfWhatEachTowerComputes) {
  const auto before = hashes(7), again = hashes(7), after = hashes(-7);
  EXPECT_EQ(before, again);
  ASSERT_EQ(before.size(), 2U);
  EXPECT_EQ(before.at(0), before.at(1));
  EXPECT_EQ(after.at(0), before.at(0));
  ASSERT_EQ(after.at(1).size(), before.at(1).size());
  EXPECT_FALSE(before.at(1).empty());
  for (std::size_t i = 0; i < before.at(1).size(); ++i)
    EXPECT_NE(after.at(1)[i], before.at(1)[i]) << after.at(1)[i].first;
}

}  // namespace output_watch_test
}  // namespace belfry
