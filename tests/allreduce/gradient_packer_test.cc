#include "belfry/allreduce/gradient_packer.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "belfry/framework/core_ops/placeholder.h"
#include "belfry/tests/allreduce/tables.h"
#include "belfry/tests/support/interpreter.h"

namespace belfry {
namespace gradient_packer_test {

using testing::ElementsAre;
using testing::HasSubstr;

// The elements of each part of one tower.
std::vector<std::int64_t> part_sizes(GradientPacker& packer, const TestGradients& gradients) {
  const GradientTable parts = packer.pack(gradients.table());
  std::vector<std::int64_t> sizes;
  for (const Gradient& part : parts.row(0)) sizes.push_back(part.value.shape().elements());
  return sizes;
}

TEST(GradientPacker, SplitsEvenlyWhenItCan) {
  TestGradients gradients(1, {{90, 100}, {1000}});
  GradientPacker packer(8);
  ASSERT_TRUE(packer.prepare(gradients.rows[0]));
  EXPECT_EQ(part_sizes(packer, gradients), std::vector<std::int64_t>(8, 1250));
  EXPECT_EQ(packer.reason(), "");
}

TEST(GradientPacker, PutsTheRestIntoTheLastPart) {
  TestGradients gradients(1, {{8195}});
  GradientPacker packer(8);
  ASSERT_TRUE(packer.prepare(gradients.rows[0]));
  EXPECT_THAT(part_sizes(packer, gradients),
              ElementsAre(1024, 1024, 1024, 1024, 1024, 1024, 1024, 1027));
}

TEST(GradientPacker, RefusesFewerThan1024ElementsPerPart) {
  TestGradients gradients(1, {{8000}, {191}});
  GradientPacker packer(8);
  EXPECT_FALSE(packer.prepare(gradients.rows[0]));
  EXPECT_THAT(packer.reason(), HasSubstr("8191 elements"));
  EXPECT_THAT(packer.reason(), HasSubstr("8192"));
}

TEST(GradientPacker, RefusesUnknownShapes) {
  Graph graph;
  GradientPacker packer(1);
  EXPECT_FALSE(packer.prepare(
      std::vector<Gradient>{{placeholder(graph, "g", DType::kF32, {kUnknownSize, 3}), {}}}));
  EXPECT_THAT(packer.reason(), HasSubstr("[?,3], is not fully known"));
}

TEST(GradientPacker, RefusesMixedDTypes) {
  Graph graph;
  GradientPacker packer(1);
  EXPECT_FALSE(
      packer.prepare(std::vector<Gradient>{{constant(graph, Tensor({2000}, DType::kF32)), {}},
                                           {constant(graph, Tensor({10}, DType::kF64)), {}}}));
  EXPECT_THAT(packer.reason(), HasSubstr("dtypes differ"));
  EXPECT_THAT(packer.reason(), HasSubstr("2010 elements"));
}

TEST(GradientPacker, ChecksShapesThenSizesThenDTypes) {
  Graph graph;
  const Gradient unknown{placeholder(graph, "g", DType::kF32, {kUnknownSize}), {}};
  const Gradient small{constant(graph, Tensor({10}, DType::kF32)), {}};
  const Gradient other{constant(graph, Tensor({10}, DType::kF64)), {}};
  GradientPacker first(1), second(1);
  EXPECT_FALSE(first.prepare(std::vector<Gradient>{small, other, unknown}));
  EXPECT_THAT(first.reason(), HasSubstr("not fully known"));
  EXPECT_FALSE(second.prepare(std::vector<Gradient>{small, other}));
  EXPECT_THAT(second.reason(), HasSubstr("20 elements, but 1 parts need at least 1024"));
}

TEST(GradientPacker, GivesBackWhatItPacked) {
  TestGradients gradients(3, {{33, 40}, {7}, {2, 3, 5}, {3001}, {}});
  const GradientTable table = gradients.table();
  GradientPacker packer(3);
  ASSERT_TRUE(packer.prepare(table.row(0)));
  const GradientTable parts = packer.pack(table);
  EXPECT_EQ(parts.towers(), 3);
  EXPECT_EQ(parts.variables(), 3);
  EXPECT_EQ(parts.at(0, 2).value.shape(), (Shape{1453}));
  const OutputRows again = packer.unpack(parts);
  for (int t = 0; t < 3; ++t)
    for (int v = 0; v < 5; ++v)
      EXPECT_EQ(evaluate(again[t][v]), gradients.value(t, v)) << t << " " << v;
}

TEST(GradientPacker, PacksAndUnpacksOnEachTowersDevice) {
  TestGradients gradients(2, {{3000}, {3000}});
  const std::size_t before = gradients.graph.size();
  GradientPacker packer(2);
  ASSERT_TRUE(packer.prepare(gradients.rows[0]));
  const GradientTable parts = packer.pack(gradients.table());
  const OutputRows again = packer.unpack(parts);
  EXPECT_EQ(crossings(gradients.graph, before), 0);
  for (int t = 0; t < 2; ++t) {
    EXPECT_EQ(parts.device(t), cpu(t));
    EXPECT_EQ(again[t][0].device(), cpu(t));
  }
}

TEST(GradientPacker, RefusesTablesThatWereNotPrepared) {
  TestGradients prepared(1, {{2000}}), other(1, {{2001}});
  GradientPacker packer(1);
  EXPECT_THROW(packer.pack(prepared.table()), InvalidArgument);
  ASSERT_TRUE(packer.prepare(prepared.rows[0]));
  EXPECT_THROW(packer.pack(other.table()), InvalidArgument);
  EXPECT_THROW(packer.unpack(prepared.table()), InvalidArgument);
  EXPECT_THROW(packer.prepare(prepared.rows[0]), InvalidArgument);
  EXPECT_THROW(GradientPacker(0), InvalidArgument);
}

}  // namespace gradient_packer_test
}  // namespace belfry
