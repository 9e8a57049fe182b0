// Sessions of all kinds run random graphs. Their results must equal the interpreter's, bit for bit.
#include "belfry/framework/run/session.h"
#include "belfry/tests/framework/passes/random_graph.h"
#include "belfry/tests/support/interpreter.h"
#include "belfry/tests/support/sanitizers.h"

namespace belfry {
namespace random_graphs_test {

// The fetches of three runs, then the variables.
template <class Runtime>
std::vector<Tensor> results(Runtime& runtime, const RandomGraph& random) {
  std::vector<Tensor> all;
  for (int run = 0; run < 3; ++run)
    for (Tensor& tensor : runtime.run(random.fetches, std::span<const FeedValue>()))
      all.push_back(std::move(tensor));
  for (const Variable v : random.variables) all.push_back(runtime.read(v));
  return all;
}

void expect_agreement(unsigned first, unsigned last, int nodes, std::int64_t side) {
  // With sanitizers every graph takes ten times as long.
  for (unsigned seed = first; seed < last; seed += kSanitized ? 5 : 1) {
    const int devices = 1 + static_cast<int>(seed % 4);
    RandomGraph random(seed, devices, nodes, side);
    Interpreter interpreter;
    const std::vector<Tensor> expected = results(interpreter, random);
    for (const int threads : {1, 2, 4}) {
      Session session(
          random.graph,
          {.device_count = {{"CPU", devices}}, .threads = threads, .all_workers = true});
      const std::vector<Tensor> got = results(session, random);
      ASSERT_EQ(got.size(), expected.size());
      for (std::size_t i = 0; i < got.size(); ++i)
        ASSERT_EQ(got[i], expected[i])
            << "seed " << seed << ", threads " << threads << ", result " << i;
    }
  }
}

// The tensors are so large that sessions wake other workers.
TEST(RandomGraphs, GiveTheBitsOfTheInterpreter) { expect_agreement(0, 150, 60, 32); }

TEST(RandomGraphs, OfTinyTensorsGiveTheBitsOfTheInterpreter) { expect_agreement(500, 520, 60, 4); }

TEST(RandomGraphs, OfManyNodesGiveTheBitsOfTheInterpreter) { expect_agreement(1000, 1012, 400, 6); }

// 160 x 160 floats exceed the 64 KiB above which workers share collectives.
TEST(RandomGraphs, WithSharedCollectivesGiveTheBitsOfTheInterpreter) {
  expect_agreement(2000, 2008, 30, 160);
}

TEST(RandomGraphs, GiveTheSameBitsOnAnyNumberOfDevices) {
  for (unsigned seed = 0; seed < 5; ++seed) {
    std::vector<Tensor> expected;
    for (int devices = 1; devices <= 4; ++devices) {
      // The graph uses four devices. Nodes on devices that do not exist fall back to the first.
      RandomGraph random(seed, 4, 60);
      Session session(random.graph, {.device_count = {{"CPU", devices}},
                                     .allow_soft_placement = true,
                                     .threads = 2,
                                     .all_workers = true});
      const std::vector<Tensor> got = results(session, random);
      if (expected.empty()) expected = got;
      for (std::size_t i = 0; i < got.size(); ++i) ASSERT_EQ(got[i], expected[i]) << seed;
    }
  }
}

}  // namespace random_graphs_test
}  // namespace belfry
