#include "belfry/ops/shapes/map_axes.h"

#include <gtest/gtest.h>

#include "belfry/ops/shapes/axis_walk_impl.h"
#include "belfry/tests/support/op_test.h"

namespace belfry {
namespace map_axes_test {

using Kind = AxisMap::Kind;

const AxisMap kMaps[] = {
    {},
    {.step = -1},
    {.a = 1, .b = 6, .step = 2},
    {.a = -1, .b = 0, .step = -3},
    {.kind = Kind::kConstants, .a = 2, .b = 3},
    {.kind = Kind::kEdge, .a = 3, .b = 1},
    {.kind = Kind::kEdge, .a = 0, .b = 4},
    {.kind = Kind::kReflect, .a = 4, .b = 3},
    {.kind = Kind::kReflect, .a = 0, .b = 2},
    {.kind = Kind::kWrap, .a = 13, .b = -13},
    {.kind = Kind::kWrap, .a = 6, .b = 9},
    {.kind = Kind::kWrap, .a = -2, .b = 0},
    {.kind = Kind::kTimes, .step = 3},
    {.kind = Kind::kEach, .step = 3},
    {.kind = Kind::kNearest, .a = 4},
    {.kind = Kind::kNearest, .a = 17},
    {.kind = Kind::kNearestExact, .a = 4},
    {.kind = Kind::kNearestExact, .a = 17},
    {.kind = Kind::kNearestExact, .a = 1},
};

// The indices of the result that show index j, found by going through all.
TEST(AxisWalk, FindsTheCopiesOfEachIndex) {
  for (const std::int64_t n : {5, 7, 9})
    for (const AxisMap& map : kMaps) {
      const AxisWalk walk = axis_walks({map}, {n})[0];
      EXPECT_EQ(walk.size, mapped_size(map, n));
      for (std::int64_t j = 0; j < n; ++j) {
        std::vector<std::int64_t> expected, found;
        for (std::int64_t i = 0; i < walk.size; ++i)
          if (walk.source(i) == j) expected.push_back(i);
        const AxisCopies copies = walk.copies(j);
        for (std::int64_t k = 0; k < copies.count; ++k) found.push_back(copies.at(k));
        EXPECT_EQ(found, expected) << map.str() << " of " << n << ", index " << j;
      }
    }
}

TEST(AxisWalk, JoinsNeighboursThatStayInPlace) {
  const std::vector<AxisWalk> walks = axis_walks({{}, {}, {}, {.step = -1}, {}}, {2, 3, 4, 5, 6});
  ASSERT_EQ(walks.size(), 4u);
  EXPECT_EQ(walks[1].n, 12);
}

TEST(MapAxes, RefusesWrongMaps) {
  const auto mapped = [](std::vector<AxisMap> maps) {
    return [=](Inputs x) { return map_axes(x[0], maps); };
  };
  expect_refused(mapped({{.step = -1}}), {{{3, 4}}}, "has 1 maps for [3,4]");
  expect_refused(mapped({{.kind = Kind::kEdge, .a = 1, .b = -2}}), {{{3}}},
                 "a padding of 1 or -2 is negative");
  expect_refused(mapped({{.kind = Kind::kWrap, .a = -4, .b = 0}}), {{{3}}},
                 "the result would have size -1 along axis 0");
}

TEST(MapAxesGrad, RefusesAGradientOfAnotherShape) {
  const auto back = [](Inputs x) {
    return x[0]
        .graph()
        .add(kMapAxesGrad, {x[0]}, {},
             NodeOptions(MapAxesGradOptions{{{.kind = Kind::kTimes, .step = 2}}, {3}}))
        .output();
  };
  expect_refused(back, {{{5}}}, "the gradient has shape [5], but the result [6]");
  expect_refused(back, {{{5, 1}}}, "needs the gradient of a tensor like [3], not 1 inputs");
}

}  // namespace map_axes_test
}  // namespace belfry
