// Strategies around another one, and packed gradients. Errors of the strategy are refused, and
// combined gradients are noted once.
#include <memory>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "belfry/allreduce/chunked.h"
#include "belfry/allreduce/mixed.h"
#include "belfry/framework/core_ops/add_n.h"
#include "belfry/ops/all_reduce.h"
#include "belfry/ops/concat.h"
#include "belfry/ops/slice.h"
#include "belfry/tests/allreduce/tables.h"

namespace belfry {
namespace wrapping_test {

using testing::HasSubstr;

constexpr int kTowers = 3;
using Rows = OutputRows;

// These make two packs of two tensors, and one tensor is left alone.
std::vector<Shape> shapes() { return {{2048}, {2048}, {2048}, {2048}, {16}}; }

// A strategy that sums correctly and then spoils the result. Tensors 0 and 1 of its table have one
// shape.
struct Fault {
  std::string name;
  void (*spoil)(const GradientTable&, Rows&);
  std::string says;
};

void PrintTo(const Fault& fault, std::ostream* out) { *out << fault.name; }

std::vector<Output> first_towers(const GradientTable& g, int v) {
  std::vector<Output> values = g.values(v);
  values.pop_back();
  return values;
}

std::vector<Fault> faults() {
  return {
      {"ATowerIsLeftOut",
       [](const GradientTable& g, Rows& rows) {
         const Output sum = add_n(first_towers(g, 1));
         for (std::vector<Output>& row : rows) row[1] = sum;
       },
       "lacks the gradient of tower 2"},
      {"ATowerCountsTwice",
       [](const GradientTable& g, Rows& rows) {
         std::vector<Output> values = g.values(0);
         values.push_back(values[1]);
         const Output sum = add_n(values);
         for (std::vector<Output>& row : rows) row[0] = sum;
       },
       "2 times"},
      {"ATowerKeepsItsOwn",
       [](const GradientTable& g, Rows& rows) { rows[1][0] = g.at(1, 0).value; },
       "of tower 1 alone"},
      {"APartLacksATower",
       [](const GradientTable& g, Rows& rows) {
         const std::int64_t elements = g.at(0, 0).value.shape().elements();
         const Output lacking = add_n(first_towers(g, 0));
         const Output whole = slice(rows[0][0], {0}, {elements - 1});
         const Output mended = concat({whole, slice(lacking, {elements - 1}, {1})}, 0);
         for (std::vector<Output>& row : rows) row[0] = mended;
       },
       "lacks the gradient of tower 2"},
      {"TwoResultsAreSwapped",
       [](const GradientTable&, Rows& rows) {
         for (std::vector<Output>& row : rows) std::swap(row[0], row[1]);
       },
       "is made of gradients of variable"},
      {"TwoTensorsAreAdded",
       [](const GradientTable& g, Rows& rows) {
         const Output sum = add_n({g.at(0, 0).value, g.at(1, 1).value, g.at(2, 0).value});
         for (std::vector<Output>& row : rows) row[0] = sum;
       },
       "adds gradients of two variables"},
      {"CopiesOfACollectiveAreSwapped",
       [](const GradientTable&, Rows& rows) { std::swap(rows[0][1], rows[2][1]); }, "the copy of"},
      {"ACollectiveMixesTensors",
       [](const GradientTable& g, Rows&) {
         all_reduce(std::vector{g.at(0, 0).value, g.at(1, 1).value, g.at(2, 0).value});
       },
       "participant 1 gives a gradient of"},
      {"ACollectiveHasATowerTwice",
       [](const GradientTable& g, Rows&) {
         all_reduce(std::vector{g.at(0, 0).value, g.at(1, 0).value, g.at(1, 0).value});
       },
       "tower 1 takes part twice"},
      {"AResultIsMissing", [](const GradientTable&, Rows& rows) { rows[1].pop_back(); },
       "combined gradients of tower 1 are"},
      {"ATowerIsMissing", [](const GradientTable&, Rows& rows) { rows.pop_back(); },
       "combined gradients of tower 2 are 0 instead of"},
      {"AResultIsEmpty", [](const GradientTable&, Rows& rows) { rows[2][1] = {}; },
       "for tower 2 is empty"},
      {"AResultHasAnotherShape",
       [](const GradientTable&, Rows& rows) { rows[1][0] = slice(rows[1][0], {0}, {1}); },
       "is f32[1], but the gradients are"},
  };
}

class Faulty final : public Strategy {
 public:
  explicit Faulty(const Fault& fault) : fault_(fault) {}

 private:
  Rows combine(const GradientTable& grads, Reduction) const override {
    Rows rows(kTowers);
    for (int v = 0; v < grads.variables(); ++v) {
      const std::vector<Output> sums = all_reduce(grads.values(v));
      for (std::size_t t = 0; t < kTowers; ++t) rows[t].push_back(sums[t]);
    }
    fault_.spoil(grads, rows);
    return rows;
  }

  const Fault& fault_;
};

using Inner = std::unique_ptr<Strategy>;

Inner itself(Inner inner) { return inner; }
Inner in_two_chunks(Inner inner) { return chunked(std::move(inner), 2); }

struct Wrapper {
  std::string name;
  Packing packing;
  Inner (*around)(Inner) = itself;
};

void PrintTo(const Wrapper& wrapper, std::ostream* out) { *out << wrapper.name; }

std::vector<Wrapper> wrappers() {
  return {
      {"Bucketed", {.bucket_mb = 1}},
      {"BucketedInTwo", {.bucket_mb = 0.02}},
      {"Mixed",
       {},
       [](Inner inner) -> Inner {
         return mixed({{make_strategy("naive"), 64}, {std::move(inner)}}, "a mix");
       }},
      {"Chunked", {}, in_two_chunks},
      {"Packed", {.parts = 4}},
      {"SmallTensorsPacked", {.small_bytes = 1 << 20, .small_group = 2}},
      {"BucketedAndSmallTensorsPacked", {.small_bytes = 1 << 20, .small_group = 2, .bucket_mb = 1}},
      {"BucketedAndChunked", {.bucket_mb = 0.02}, in_two_chunks}};
}

class Wrapped : public testing::TestWithParam<Wrapper> {};

TEST_P(Wrapped, EveryFaultIsRefused) {
  for (const Fault& fault : faults())
    for (const Reduction reduction : {Reduction::kSum, Reduction::kMean}) {
      const TestGradients gradients(kTowers, shapes());
      EXPECT_THAT(message_of([&] {
                    GetParam()
                        .around(std::make_unique<Faulty>(fault))
                        ->reduce(gradients.table(),
                                 {.reduction = reduction, .packing = GetParam().packing});
                  }),
                  HasSubstr(fault.says))
          << fault.name;
    }
}

TEST_P(Wrapped, EachVariableIsNotedOnce) {
  for (const bool weighted : {false, true})
    for (const Reduction reduction : {Reduction::kSum, Reduction::kMean}) {
      TestGradients gradients(kTowers, shapes());
      ReduceOptions options{.reduction = reduction, .packing = GetParam().packing};
      for (int t = 0; weighted && t < kTowers; ++t)
        options.weights.push_back(constant(gradients.graph, t + 1));
      const GradientTable combined =
          GetParam().around(make_strategy("collective"))->reduce(gradients.table(), options);
      const auto noted = gradients.graph.combined_gradients();
      ASSERT_EQ(noted.size(), shapes().size());
      for (int v = 0; v < combined.variables(); ++v) {
        const CombinedGradient& one = noted[static_cast<std::size_t>(v)];
        EXPECT_EQ(one.variables[1], combined.at(1, v).variable);
        EXPECT_EQ(one.gradients, gradients.table().values(v));
        EXPECT_EQ(one.results, combined.values(v));
      }
    }
}

INSTANTIATE_TEST_SUITE_P(Strategies, Wrapped, testing::ValuesIn(wrappers()),
                         [](const auto& test) { return test.param.name; });

}  // namespace wrapping_test
}  // namespace belfry
