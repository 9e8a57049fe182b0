// Runs of ops that fail, by either kind of kernels.
#pragma once
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "belfry/framework/base/error.h"
#include "belfry/framework/core_ops/placeholder.h"
#include "belfry/tests/support/interpreter.h"
#include "belfry/tests/support/op_test.h"

namespace belfry::test {

// The first output.
inline Tensor run(const Builder& build, const std::vector<Tensor>& inputs, bool reference) {
  Graph graph;
  std::vector<Output> xs;
  std::vector<FeedValue> feeds;
  for (const Tensor& input : inputs) {
    xs.push_back(placeholder(graph, "x", input.dtype(), input.shape()));
    feeds.push_back({xs.back(), input});
  }
  const Built outputs = build(xs);
  return evaluate(outputs, feeds, {.reference = reference})[0];
}

// Fast and reference kernels throw InvalidArgument, whose text begins with `start` and has `part`.
inline void expect_run_refused(const Builder& build, const std::vector<Tensor>& inputs,
                               const std::string& start, const std::string& part) {
  for (const bool reference : {false, true}) {
    try {
      run(build, inputs, reference);
      ADD_FAILURE() << "no error";
    } catch (const InvalidArgument& error) {
      const std::string text = error.what();
      EXPECT_TRUE(text.starts_with(start)) << text;
      EXPECT_NE(text.find(part), std::string::npos) << text;
    }
  }
}

}  // namespace belfry::test
