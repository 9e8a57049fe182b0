#include "belfry/towers/variable_getters.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "belfry/framework/base/text.h"
#include "belfry/tests/towers/towers_test_support.h"

namespace belfry {
namespace variable_getters_test {

using testing::ElementsAre;

constexpr std::int64_t kSmall = 1024 * 64;

// The devices of the default reads of variables of these sizes.
std::vector<std::string> reads(OverrideCachingDevice& cache,
                               const std::vector<std::int64_t>& sizes) {
  Graph graph;
  VariableScope scope(graph, cache);
  std::vector<std::string> devices;
  for (const std::int64_t size : sizes) {
    const Variable v = variable(graph, cat("v", devices.size()), {size});
    EXPECT_TRUE(v.device().empty());
    devices.push_back(Output(v).device().str());
  }
  return devices;
}

TEST(OverrideCachingDevice, CachesSmallVariablesOnOneDevice) {
  OverrideCachingDevice cache({"/gpu:0", "/gpu:1"}, "/cpu:0", kSmall);
  EXPECT_THAT(reads(cache, {1, kSmall - 1, kSmall}),
              ElementsAre("/device:CPU:0", "/device:CPU:0", "/device:GPU:0"));
  EXPECT_THAT(cache.loads(), ElementsAre(kSmall, 0));
}

TEST(OverrideCachingDevice, CachesLargeOnesWhereTheFewestElementsAre) {
  OverrideCachingDevice cache({"/gpu:0", "/gpu:1"}, "/cpu:0", 10);
  EXPECT_THAT(reads(cache, {100, 50, 60, 40, 10}),
              ElementsAre("/device:GPU:0", "/device:GPU:1", "/device:GPU:1", "/device:GPU:0",
                          "/device:GPU:1"));
  EXPECT_THAT(cache.loads(), ElementsAre(140, 120));
  EXPECT_THAT(reads(cache, {20}), ElementsAre("/device:GPU:1")) << "loads last as long as it";
}

TEST(OverrideCachingDevice, MakesUntrainedVariablesLocalAndGivesThemNoCache) {
  Graph graph;
  OverrideCachingDevice cache({"/gpu:0"}, "/cpu:0", 1);
  VariableScope scope(graph, cache);
  const Variable plain = variable(graph, "plain", {100}, {.trainable = false});
  const Variable asks =
      variable(graph, "asks", {100}, {.trainable = false, .caching_device = "/cpu:3"});
  EXPECT_TRUE(Output(plain).device().empty());
  EXPECT_EQ(Output(asks).device().str(), "/device:CPU:3");
  EXPECT_THAT(names_of(graph.variables(kLocalVariables)), ElementsAre("plain", "asks"));
  EXPECT_TRUE(graph.variables(kGlobalVariables).empty());
  EXPECT_THAT(cache.loads(), ElementsAre(0));
}

TEST(OverrideCachingDevice, NeedsADevice) {
  EXPECT_THROW(OverrideCachingDevice({}, "/cpu:0", 1), InvalidArgument);
}

}  // namespace variable_getters_test
}  // namespace belfry
