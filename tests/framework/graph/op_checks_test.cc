// check_op must find faults of an op: each op here breaks one promise.
#include <algorithm>
#include <cmath>

#include <gtest/gtest-spi.h>
#include <gtest/gtest.h>

#include "belfry/framework/graph/graph.h"
#include "belfry/framework/graph/shards.h"
#include "belfry/tests/support/op_test.h"

namespace belfry {
namespace op_checks_test {

std::vector<Output> pass_on(const Node&, std::span<const Output> grads) { return {grads[0]}; }

// y = x + f(i, range) for every element.
template <class F>
KernelRun shifted_by(KernelPlan& plan, F f) {
  return visit_floating(plan.dtype(), [&]<class T>(T) -> KernelRun {
    return [f](const KernelPointers& p) {
      for (std::int64_t i = p.begin(); i < p.end(); ++i)
        p.output<T>()[i] = p.input<T>(0)[i] + static_cast<T>(f(i, WorkRange{p.begin(), p.end()}));
    };
  });
}

KernelRun copies(KernelPlan& plan) {
  return shifted_by(plan, [](std::int64_t, WorkRange) { return 0.0; });
}
KernelRun adds_a_little(KernelPlan& plan) {
  return shifted_by(plan, [](std::int64_t, WorkRange) { return 1e-4; });
}
KernelRun depends_on_index(KernelPlan& plan) {
  return shifted_by(plan, [](std::int64_t i, WorkRange) { return i % 4 == 3 ? 1e-6 : 0.0; });
}
KernelRun depends_on_range(KernelPlan& plan) {
  return shifted_by(plan, [](std::int64_t i, WorkRange r) { return i - r.begin < 8 ? 0.0 : 1e-6; });
}
KernelRun swallows_nan(KernelPlan& plan) {
  return visit_floating(plan.dtype(), []<class T>(T) -> KernelRun {
    return [](const KernelPointers& p) {
      for (std::int64_t i = p.begin(); i < p.end(); ++i)
        p.output<T>()[i] = std::fmax(p.input<T>(0)[i], T(-9));
    };
  });
}
KernelRun leaves_the_last_out(KernelPlan& plan) {
  return visit_floating(plan.dtype(), [&]<class T>(T) -> KernelRun {
    return [last = plan.output().shape.elements() - 1](const KernelPointers& p) {
      for (std::int64_t i = p.begin(); i < std::min(p.end(), last); ++i)
        p.output<T>()[i] = p.input<T>(0)[i];
    };
  });
}

OutputTypes one_value(const ShapeContext&) { return {Shape{}}; }

// Computes the mean of a shard instead of its share in the mean of the whole.
KernelRun mean_of_shard(KernelPlan& plan) {
  return visit_floating(plan.dtype(), [&]<class T>(T) -> KernelRun {
    return [count = plan.input(0).shape.elements()](const KernelPointers& p) {
      T sum = 0;
      for (std::int64_t i = 0; i < count; ++i) sum += p.input<T>(0)[i];
      *p.output<T>() = sum / static_cast<T>(count);
    };
  });
}

const Op kRight{.name = "Right",
                .inputs = 1,
                .shape = same_as_input,
                .gradient = pass_on,
                .split = WorkSplit::kElements,
                .cpu = copies,
                .reference = copies};
const Op kOtherThanReference{.name = "OtherThanReference",
                             .inputs = 1,
                             .shape = same_as_input,
                             .gradient = pass_on,
                             .split = WorkSplit::kElements,
                             .cpu = adds_a_little,
                             .reference = copies};
const Op kDependsOnIndex{.name = "DependsOnIndex",
                         .inputs = 1,
                         .shape = same_as_input,
                         .gradient = pass_on,
                         .split = WorkSplit::kElements,
                         .reference = depends_on_index};
const Op kDependsOnRange{.name = "DependsOnRange",
                         .inputs = 1,
                         .shape = same_as_input,
                         .gradient = pass_on,
                         .split = WorkSplit::kElements,
                         .reference = depends_on_range};
const Op kSwallowsNan{.name = "SwallowsNan",
                      .inputs = 1,
                      .shape = same_as_input,
                      .gradient = pass_on,
                      .split = WorkSplit::kElements,
                      .reference = swallows_nan};
const Op kLeavesOut{.name = "LeavesOut",
                    .inputs = 1,
                    .shape = same_as_input,
                    .gradient = pass_on,
                    .split = WorkSplit::kElements,
                    .cpu = leaves_the_last_out,
                    .reference = copies};
const Op kWrongPartialSums{.name = "WrongPartialSums",
                           .inputs = 1,
                           .shape = one_value,
                           .no_gradient = "it is not needed",
                           .shards = to_sums<1>,
                           .reference = mean_of_shard};

std::vector<Output> too_large(const Node&, std::span<const Output> grads) {
  return {grads[0].graph().add(kOtherThanReference, {grads[0]}).output()};
}
const Op kWrongGradient{.name = "WrongGradient",
                        .inputs = 1,
                        .shape = same_as_input,
                        .gradient = too_large,
                        .split = WorkSplit::kElements,
                        .reference = copies};

// The failures that check_op reports of an op.
std::string complaints(const Op& op, double gradient = 1e-6) {
  testing::TestPartResultArray results;
  {
    using Reporter = testing::ScopedFakeTestPartResultReporter;
    const Reporter reporter(Reporter::INTERCEPT_ONLY_CURRENT_THREAD, &results);
    check_op({.build = [&](Inputs x) { return x[0].graph().add(op, {x[0]}).output(); },
              .inputs = {random_values({5, 13}, 1, 2)},
              .gradient = gradient});
  }
  std::string text;
  for (int i = 0; i < results.size(); ++i) text += results.GetTestPartResult(i).message();
  return text;
}

void expect_complaint(const Op& op, const std::string& what, double gradient = 1e-6) {
  const std::string text = complaints(op, gradient);
  EXPECT_NE(text.find(what), std::string::npos) << op.name << ": " << text;
}

TEST(OpChecks, AcceptARightOp) { EXPECT_EQ(complaints(kRight), ""); }

TEST(OpChecks, FindAFastKernelThatDiffersFromTheReference) {
  expect_complaint(kOtherThanReference, "fast kernels against reference kernels");
}

TEST(OpChecks, FindAResultThatDependsOnItsIndex) {
  expect_complaint(kDependsOnIndex, "inputs rotated by 1 give other bits");
}

TEST(OpChecks, FindAResultThatDependsOnTheRange) {
  expect_complaint(kDependsOnRange, "2 parts: other bits");
  expect_complaint(kDependsOnRange, "a first part of 5: other bits");
}

TEST(OpChecks, FindSwallowedNan) { expect_complaint(kSwallowsNan, "NaN in, but in output 0"); }

TEST(OpChecks, FindElementsThatAreNotWritten) {
  expect_complaint(kLeavesOut, "fast kernels against reference kernels");
}

TEST(OpChecks, FindPartialSumsThatDoNotAddUp) {
  expect_complaint(kWrongPartialSums, "2 shards", -1);
}

TEST(OpChecks, FindAWrongGradient) { expect_complaint(kWrongGradient, "gradient: output 0"); }

}  // namespace op_checks_test
}  // namespace belfry
