// Recurrences that cuDNN computes: which calls it gets, in steps that are captured.
#include <cudnn.h>

#include "belfry/framework/base/text.h"
#include "belfry/framework/core_ops/constant.h"
#include "belfry/framework/core_ops/placeholder.h"
#include "belfry/framework/gradients/gradients.h"
#include "belfry/ops/operand.h"
#include "belfry/ops/recurrent/recurrent.h"
#include "belfry/ops/reduce.h"
#include "belfry/tests/recorder/library_calls.h"
#include "belfry/tests/recorder/recorder_support.h"

namespace belfry::recorder {
namespace recurrences_test {

using ::testing::Contains;
using ::testing::Each;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;
using ::testing::SizeIs;

using RecorderRecurrences = RecorderTest;

// The sum of y and the gradients of x and of all weights. Sizes differ from test to test, because
// choices are kept by them.
struct Network {
  Network(int time, bool is_lstm, bool reverse, DType dtype = DType::kF32) {
    const DeviceScope on(graph, gpu(0));
    const std::int64_t hidden = 6, columns = (is_lstm ? 4 : 3) * hidden;
    x = placeholder(graph, "x", dtype, {2, time, 5});
    const auto zeros = [&](Shape shape) { return constant(graph, Tensor(shape, dtype)); };
    const RecurrentWeights weights{.input = zeros({5, columns}),
                                   .hidden = zeros({hidden, columns}),
                                   .input_bias = zeros({columns}),
                                   .hidden_bias = zeros({columns})};
    const auto build = is_lstm ? lstm : gru;
    const RecurrentOptions options{.h = zeros({2, hidden}),
                                   .c = is_lstm ? zeros({2, hidden}) : Output(),
                                   .reverse = reverse,
                                   .cudnn = true};
    const RecurrentResult r = build(x, weights, options, {});
    const Output loss = reduce_sum(r.y * r.y) + reduce_sum(r.h);
    fetches = {loss};
    for (const Output& grad :
         gradients(loss, {x, weights.input, weights.hidden, weights.input_bias}))
      fetches.push_back(grad);
  }

  void run(int times, bool deterministic = false) {
    SessionOptions options = on_gpus({1, 1});
    options.deterministic = deterministic;
    Session session(graph, options);
    const std::vector<FeedType> types{{x, x.shape()}};
    CompiledStep& step = session.prepare(std::vector<Fetch>(fetches.begin(), fetches.end()), types);
    const std::vector<Tensor> feeds{Tensor(x.shape(), x.dtype())};
    for (int i = 0; i < times; ++i) step.run(feeds);
  }

  Graph graph;
  Output x;
  std::vector<Output> fetches;
};

std::vector<std::string> details(const char* start) {
  std::vector<std::string> all;
  for (const Call& call : recorder().calls())
    if (call.name.starts_with(start)) all.push_back(call.detail);
  return all;
}

// All works of the recorder take equally long, and cuDNN needs fewer than our kernels, which have
// some for each time.
TEST_F(RecorderRecurrences, AreMeasuredOnceAndTheFasterWayIsKept) {
  for (const bool is_lstm : {true, false})
    for (const bool reverse : {false, true}) {
      SCOPED_TRACE(cat(is_lstm, " ", reverse));
      recorder().reset();
      const int time = reverse ? 21 : 20;
      Network(time, is_lstm, reverse).run(1);
      // Two algorithms of cuDNN, and ours.
      EXPECT_EQ(recorder().count("cudaEventElapsedTime"), 3);
      const std::string cell = is_lstm ? "lstm, exact" : "gru, exact";
      for (const char* call :
           {"cudnnRNNForward", "cudnnRNNBackwardData_v8", "cudnnRNNBackwardWeights_v8"})
        for (const int algorithm : {0, 1})
          EXPECT_THAT(details(call), Contains(cat(cell, ", algorithm ", algorithm)));
      EXPECT_THAT(recorder().violations(), IsEmpty());
      recorder().reset();
      Network(time, is_lstm, reverse).run(5);  // captures, replays
      EXPECT_EQ(recorder().count("cudaEventElapsedTime"), 0);
      EXPECT_THAT(details("cudnnRNN"), Not(IsEmpty()));
      EXPECT_THAT(details("cudnnRNN"), Each(HasSubstr("algorithm 0")));
      EXPECT_THAT(details("cudaLaunchKernel"), Not(Contains(HasSubstr("StepOfRows"))));
      EXPECT_THAT(details("cudaGraphLaunch"), Not(IsEmpty()));
      EXPECT_THAT(recorder().violations(), IsEmpty());
    }
}

TEST_F(RecorderRecurrences, OfDeterministicRunsAreOurs) {
  Network(22, true, false).run(5, true);
  EXPECT_THAT(details("cudnnRNN"), IsEmpty());
  EXPECT_THAT(details("cudaLaunchKernel"), Contains(HasSubstr("StepOfRows")));
  EXPECT_EQ(recorder().count("cudaEventElapsedTime"), 0);
}

// The first algorithm when cuDNN is asked for its memory; or the last, which is tried first, when
// it is called.
TEST_F(RecorderRecurrences, PassOverAlgorithmsThatCudnnRefuses) {
  recorder().fail("cudnnGetRNNTempSpaceSizes", 0, CUDNN_STATUS_NOT_SUPPORTED);
  Network(23, false, false).run(1);
  EXPECT_TRUE(recorder().failed());
  EXPECT_EQ(recorder().count("cudaEventElapsedTime"), 2);
  EXPECT_THAT(details("cudnnRNN"), Each(HasSubstr("algorithm 1")));
  recorder().reset();
  recorder().fail("cudnnRNNBackwardWeights_v8", 0, CUDNN_STATUS_NOT_SUPPORTED);
  Network(24, false, false).run(1);
  EXPECT_TRUE(recorder().failed());
  EXPECT_EQ(recorder().count("cudaEventElapsedTime"), 2);
  EXPECT_THAT(details("cudnnRNNBackwardWeights_v8"), Each(HasSubstr("algorithm 0")));
}

TEST_F(RecorderRecurrences, NameThemIfTheyFail) {
  Network network(25, true, false);
  network.run(1);
  recorder().fail("cudnnRNNForward", 0, CUDNN_STATUS_EXECUTION_FAILED);
  EXPECT_THAT(message_of<DeviceError>([&] { network.run(1); }),
              ::testing::ContainsRegex("cudnnRNNForward failed: .*WholeLstm.*GPU 0"));
}

}  // namespace recurrences_test
}  // namespace belfry::recorder
