#include "belfry/allreduce/all_reduce_spec.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "belfry/allreduce/strategy.h"
#include "belfry/framework/base/text.h"
#include "belfry/framework/core_ops/add_n.h"
#include "belfry/ops/all_reduce.h"
#include "belfry/tests/allreduce/tables.h"
#include "belfry/tests/support/mutate.h"

namespace belfry {

// GoogleTest prints ranges by this.
static void PrintTo(const AllReduceRange& range, std::ostream* out) {
  *out << "(" << range.strategy << ", " << range.chunks << ", " << range.limit << ")";
}

namespace all_reduce_spec_test {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using R = AllReduceRange;

std::vector<AllReduceRange> parse(std::string_view text) {
  return parse_all_reduce_spec(text).ranges;
}

// Expects an error that names the spec and the piece.
void expect_refused(const std::string& spec, const std::string& piece) {
  const std::string message = message_of([&] { parse_all_reduce_spec(spec); });
  EXPECT_THAT(message, HasSubstr("'" + spec + "'"));
  EXPECT_THAT(message, HasSubstr(piece)) << spec;
  EXPECT_EQ(message_of([&] { make_strategy(spec); }), message);
}

// The vectors of tf_cnn_benchmarks.
TEST(AllReduceSpec, ReadsStrategiesChunksAndLimits) {
  EXPECT_THAT(parse("nccl"), ElementsAre(R{"nccl", 1, -1}));
  EXPECT_THAT(parse("xring#2"), ElementsAre(R{"xring", 2, -1}));
  EXPECT_THAT(parse("ring#2"), ElementsAre(R{"ring", 2, -1}));
  EXPECT_THAT(parse("pscpu:2k:pscpu#2:64k:xring"),
              ElementsAre(R{"pscpu", 1, 2048}, R{"pscpu", 2, 65536}, R{"xring", 1, -1}));
  EXPECT_THAT(parse("pscpu/pscpu#2"), ElementsAre(R{"pscpu/pscpu", 2, -1}));
  EXPECT_THAT(parse("pscpu:32k:nccl:1M:xring#2"),
              ElementsAre(R{"pscpu", 1, 32768}, R{"nccl", 1, 1048576}, R{"xring", 2, -1}));
  EXPECT_THAT(parse("collective:64k:hierarchical"),
              ElementsAre(R{"collective", 1, 65536}, R{"hierarchical", 1, -1}));
}

TEST(AllReduceSpec, KnowsEveryNameAndAlias) {
  for (const char* name : {"nccl", "nccl/xring", "nccl/rechd", "nccl/pscpu", "xring", "ring",
                           "rechd", "halving_doubling", "pscpu", "psgpu", "shuffle", "pscpu/pscpu",
                           "collective", "hierarchical", "naive", "naive_cpu", "colocate"})
    EXPECT_THAT(parse(name), ElementsAre(R{name})) << name;
}

TEST(AllReduceSpec, ReadsSuffixesAsPowersOf1024) {
  EXPECT_THAT(parse("naive:1:ring:2k:ring:3K:ring:4M:ring:5G:ring:6T:naive"),
              ElementsAre(R{"naive", 1, 1}, R{"ring", 1, 2 << 10}, R{"ring", 1, 3 << 10},
                          R{"ring", 1, 4 << 20}, R{"ring", 1, std::int64_t{5} << 30},
                          R{"ring", 1, std::int64_t{6} << 40}, R{"naive"}));
  EXPECT_EQ(parse("naive:9223372036854775807:ring")[0].limit, 9223372036854775807);
  EXPECT_EQ(parse("naive:8388607T:ring")[0].limit, std::int64_t{8388607} << 40);
}

TEST(AllReduceSpec, RefusesWhatIsNotWellFormed) {
  expect_refused("nccl:", "not well formed");
  expect_refused("pscpu:32k", "not well formed");
  expect_refused(":", "not well formed");
  expect_refused("pscpu:2k:pscpu:4k", "not well formed");
}

TEST(AllReduceSpec, RefusesUnknownNamesWithTheNearest) {
  expect_refused("rong", "unknown aggregation strategy 'rong'; did you mean 'ring'?");
  expect_refused("NCCL", "unknown aggregation strategy 'NCCL'");
  expect_refused("", "unknown aggregation strategy ''");
  expect_refused("pscpu:2k:rong:4k:ring", "'rong'; did you mean 'ring'?");
  expect_refused("naive:2k:", "unknown aggregation strategy ''");
  expect_refused("#2", "unknown aggregation strategy ''");
  expect_refused("ring ", "'ring '; did you mean 'ring'?");
  expect_refused("nccl/ring", "'nccl/ring'");
}

TEST(AllReduceSpec, RefusesLimitsThatAreNone) {
  expect_refused("pscpu:x:xring", "limit 'x' is not a whole number of bytes");
  for (const char* limit :
       {"", "k", "-", "2kk", "2m", "2g", "0x10", "1.5k", " 2k", "+2", "2k ", "-k"})
    expect_refused(cat("pscpu:", limit, ":xring"),
                   cat("limit '", limit, "' is not a whole number of bytes"));
  expect_refused("pscpu:-1:xring", "limit '-1' is below 1 byte");
  expect_refused("pscpu:0:xring", "limit '0' is below 1 byte");
  expect_refused("pscpu:-2k:xring", "limit '-2k' is below 1 byte");
  for (const char* limit : {"9223372036854775808", "8388608T", "99999999999999999999999T"})
    expect_refused(cat("pscpu:", limit, ":xring"), cat("limit '", limit, "' is out of range"));
}

TEST(AllReduceSpec, RefusesLimitsThatLeaveARangeNothing) {
  expect_refused("naive:64k:ring:64k:shuffle", "'ring' would get no tensor");
  expect_refused("naive:64k:ring:2k:shuffle", "limit '2k' is not above the one before it");
}

TEST(AllReduceSpec, RefusesNumbersOfChunksThatAreNone) {
  expect_refused("nccl#a", "'nccl#a': 'a' is not a number of chunks");
  for (const char* chunks : {"", "0", "-1", "2#3", "x", "2k", "257", "99999999999"})
    expect_refused(cat("naive:2k:ring#", chunks), cat("'ring#", chunks, "': '", chunks,
                                                      "' is not a number of chunks between 1 and"));
  EXPECT_THAT(parse("ring#256"), ElementsAre(R{"ring", 256}));
  EXPECT_THAT(parse("ring#1"), ElementsAre(R{"ring", 1}));
}

TEST(AllReduceSpec, TakesChunksForRingShuffleAndCollectiveAlone) {
  for (const char* name : {"ring", "xring", "shuffle", "pscpu", "psgpu", "collective",
                           "pscpu/pscpu", "nccl/xring", "nccl/pscpu"})
    EXPECT_EQ(parse(cat(name, "#2"))[0].chunks, 2) << name;
  for (const char* name : {"nccl", "naive", "naive_cpu", "hierarchical", "colocate", "rechd",
                           "halving_doubling", "nccl/rechd"})
    expect_refused(cat(name, "#2"), cat(name, " takes no number of chunks"));
}

TEST(AllReduceSpec, TakesAutoAlone) {
  EXPECT_TRUE(parse_all_reduce_spec("auto").is_auto());
  EXPECT_FALSE(parse_all_reduce_spec("ring").is_auto());
  expect_refused("auto:2k:ring", "'auto' chooses for all sizes");
  expect_refused("ring:2k:auto", "'auto' chooses for all sizes");
  expect_refused("auto#2", "auto takes no number of chunks");
  EXPECT_THAT(message_of([] { make_strategy("auto"); }),
              AllOf(HasSubstr("'auto'"), HasSubstr("has not been made")));
}

TEST(AllReduceSpec, KnowsWhatItUses) {
  const AllReduceSpec spec = parse_all_reduce_spec("naive:2k:colocate:4k:ring#2");
  EXPECT_TRUE(spec.uses("colocate"));
  EXPECT_TRUE(spec.uses("ring"));
  EXPECT_FALSE(spec.uses("collective"));
}

TEST(AllReduceSpec, ShowsLongOrStrangeSpecsInPart) {
  const std::string message =
      message_of([] { make_strategy(cat(std::string(100000, 'x'), "\x1b[31m")); });
  EXPECT_LT(message.size(), 1000U);
  EXPECT_EQ(message.find('\x1b'), message.npos);
}

// Any text is read or refused. A text that is read keeps the rules.
TEST(AllReduceSpec, ReadsOrRefusesAnyText) {
  std::vector<test::Input> corpus;
  for (const std::string_view text :
       {"pscpu:2k:pscpu#2:64k:xring", "auto", "naive:8388607T:ring#256", "nccl/xring#2", ":#"})
    corpus.emplace_back(text.begin(), text.end());
  test::Mutator mutator(corpus, 5);
  int read = 0;
  for (int i = 0; i < 20000; ++i) {
    const test::Input input = mutator.next();
    AllReduceSpec spec;
    try {
      spec = parse_all_reduce_spec({reinterpret_cast<const char*>(input.data()), input.size()});
    } catch (const InvalidArgument&) {
      continue;
    }
    ++read;
    std::int64_t before = 0;
    for (const R& range : spec.ranges) {
      EXPECT_TRUE(range.chunks >= 1 && range.chunks <= kMostChunks);
      const bool last = &range == &spec.ranges.back();
      EXPECT_TRUE(last ? range.limit == kNoLimit : range.limit > before);
      before = range.limit;
    }
  }
  EXPECT_GT(read, 100);
  EXPECT_LT(read, 19900);
}

TEST(MixedStrategy, SendsEachTensorToTheFirstRangeThatTakesIt) {
  // The tensors have 4, 64, 68, 128 and 132 bytes.
  TestGradients g(4, {{}, {4, 4}, {17}, {32}, {33}});
  const GradientTable sums = make_strategy("collective:64:naive:128:shuffle")
                                 ->reduce(g.table(), {.reduction = Reduction::kSum});
  const auto prefix = [&](int v) {
    const std::string name(sums.at(1, v).value.node().name());
    return name.substr(0, name.find('/'));
  };
  EXPECT_EQ(prefix(0), "AllReduceGrads");
  EXPECT_EQ(prefix(1), "AllReduceGrads") << "up to the limit";
  EXPECT_EQ(prefix(2), "AllReduceNaive");
  EXPECT_EQ(prefix(3), "AllReduceNaive");
  EXPECT_EQ(prefix(4), "AllReduceShuffle");
}

TEST(MixedStrategy, BuildsNothingForRangesWithoutTensors) {
  TestGradients g(4, {{8}, {9}});
  make_strategy("ring:4:collective:1M:halving_doubling")->reduce(g.table());
  EXPECT_EQ(nodes_of(g.graph, kAllReduce).size(), 2U);
  EXPECT_TRUE(nodes_of(g.graph, kAddN).empty());
}

TEST(MixedStrategy, IsCanonicalIfAllItsPartsAre) {
  EXPECT_TRUE(make_strategy("naive:2k:shuffle#2:4k:collective")->canonical(3));
  EXPECT_FALSE(make_strategy("naive:2k:ring:4k:collective")->canonical(4));
  EXPECT_TRUE(make_strategy("naive:2k:halving_doubling")->canonical(4));
  EXPECT_FALSE(make_strategy("naive:2k:halving_doubling")->canonical(6));
}

}  // namespace all_reduce_spec_test
}  // namespace belfry
