// Every call of CUDA and its libraries fails once, at each of its places in a small training run.
// The error names the call and its purpose. Then training goes on, if need be from restored values.
#include <set>

#include "belfry/framework/base/text.h"
#include "belfry/ops/attention/attention.h"
#include "belfry/ops/convolution/conv2d.h"
#include "belfry/tests/recorder/recorder_support.h"

namespace belfry::recorder {
namespace errors_test {

using ::testing::ContainsRegex;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

// Runs up to the first one that replays.
constexpr int kRuns = 4;

struct Training {
  explicit Training(Layout gpus) : model("GPU", gpus.devices()), layout(gpus) {}
  void prepare() {
    session = std::make_unique<Session>(model.graph, on_gpus(layout));
    step = &session->prepare(model.fetches(), model.feed_types());
    saved = std::make_unique<SavedVariables>(*session, model.variables());
  }
  void run(int runs) {
    for (int i = 0; i < runs; ++i) step->run(model.feeds(i));
  }

  Towers model;
  Layout layout;
  std::unique_ptr<Session> session;
  std::unique_ptr<SavedVariables> saved;
  CompiledStep* step = nullptr;
};

class RecorderErrors : public RecorderTest {
 protected:
  // Calls that end something, or go back to a GPU, where no caller can learn of a failure.
  // cudaPointerGetAttributes only finds the better GPU. Without a graph, steps go by launches.
  static bool may_be_ignored(const std::string& function) {
    static const std::set<std::string> all{"cudaGetDevice", "cudaSetDevice",
                                           "cudaPointerGetAttributes", "cudaGraphInstantiate",
                                           "cudaGraphUpload"};
    return function.find("Destroy") != function.npos || function.starts_with("cudaFree") ||
           all.contains(function);
  }

  // A pattern for the function's name in errors.
  static std::string said_of(const std::string& function) {
    if (function == "cudaLaunchKernel") return "(cudaLaunchKernel|stamp|store) failed: ";
    if (function == "cudaFuncGetAttributes") return "cannot run this module's code: ";
    return cat(function, " failed: ");
  }

  // If these calls fail, the thread stays on its GPU and frees nothing.
  static bool moves(const std::string& function) {
    return function == "cudaGetDevice" || function == "cudaSetDevice";
  }

  // Trains while call `number` of a function fails, and afterwards.
  static void expect_recovery(Layout layout, const std::string& function, int number) {
    SCOPED_TRACE(cat(function, " ", number));
    recorder().reset();
    Training training(layout);
    constexpr int kInternalError = 14;  // of cuBLASLt; cuDNN has it under another name
    recorder().fail(function, number,
                    function.starts_with("cudnn")      ? 4000
                    : function.starts_with("cublasLt") ? kInternalError
                                                       : int{cudaErrorLaunchFailure});
    std::string error;
    try {
      training.prepare();
      training.run(kRuns);
    } catch (const DeviceError& failure) {
      error = failure.what();
    }
    if (!recorder().failed()) return;  // handles that the module keeps are made once
    if (!error.empty()) {
      EXPECT_THAT(error, ContainsRegex(said_of(function)));
      EXPECT_THAT(error, ContainsRegex("GPU [01]|of the host"));
    } else {
      EXPECT_TRUE(may_be_ignored(function));
    }
    if (!training.saved) training.prepare();
    try {
      training.run(1);
    } catch (const InvalidArgument& closed) {
      EXPECT_THAT(closed.what(), HasSubstr("restore them"));
      training.saved->restore();
    }
    training.run(kRuns);
    if (moves(function)) return;
    EXPECT_THAT(recorder().violations(), IsEmpty());
  }

  void expect_recoveries(Layout layout, int most_places) {
    {
      Training training(layout);
      training.prepare();
      training.run(kRuns);
    }
    auto counts = recorder().counts();
    counts.erase("cudaStreamQuery");  // the number of calls depends on time
    EXPECT_GE(counts.size(), 30u);
    for (const auto& [function, count] : counts) {
      const auto before = alive();
      for (int i = 0; i < std::min(count, most_places); ++i)
        expect_recovery(layout, function, i * count / std::min(count, most_places));
      EXPECT_TRUE(moves(function) || alive() == before) << function;
    }
    recorder().reset();
    allow_leaks();
  }
};

TEST_F(RecorderErrors, AreSaidAndSurvivedOnOneGpu) { expect_recoveries({1, 2}, 8); }
TEST_F(RecorderErrors, AreSaidAndSurvivedOnTwoGpus) { expect_recoveries({2, 1}, 4); }

TEST_F(RecorderErrors, OfAConvolutionNameIt) {
  Graph graph;
  Output y;
  {
    DeviceScope on(graph, gpu(0));
    y = conv2d(constant(graph, Tensor({1, 5, 5, 3}, DType::kF32)),
               constant(graph, Tensor({2, 3, 3, 3}, DType::kF32)));
  }
  for (const auto& [function, said] :
       {std::pair("cudnnFindConvolutionForwardAlgorithm",
                  "cuDNN failed.*asking cuDNN for algorithms"),
        std::pair("cudnnConvolutionForward", "cudnnConvolutionForward failed")}) {
    SCOPED_TRACE(function);
    recorder().fail(function, 0, 4000);
    Session session(graph, on_gpus({1, 1}));
    EXPECT_THAT(message_of<DeviceError>([&] { session.run({y}); }),
                ContainsRegex(cat(said, ".*Conv2d.*GPU 0")));
  }
}

// The first attempt fails when algorithms are measured, the second in a step.
TEST_F(RecorderErrors, OfAttentionNameIt) {
  Graph graph;
  Output y;
  {
    DeviceScope on(graph, gpu(0));
    const Output q = constant(graph, Tensor({1, 19, 16}, DType::kBF16));
    y = causal_attention(q, q, q, {.heads = 2});
  }
  for (int attempt = 0; attempt < 2; ++attempt) {
    recorder().fail("cudnnBackendExecute", 0, 4000);
    Session session(graph, on_gpus({1, 1}));
    EXPECT_THAT(message_of<DeviceError>([&] { session.run({y}); }),
                ContainsRegex("cudnnBackendExecute failed: .*Attention.*GPU 0"));
    session.run({y});  // takes cuDNN's algorithm
  }
}

// cuDNN lists algorithms for f64 in NHWC that it may refuse when it computes.
TEST_F(RecorderErrors, OfListedAlgorithmsAreFoundBeforeOneIsTaken) {
  for (const bool refuses : {true, false}) {
    Graph graph;
    Output y;
    {
      DeviceScope on(graph, gpu(0));  // choices are kept by shape
      y = conv2d(constant(graph, Tensor({1, 5, refuses ? 6 : 7, 3}, DType::kF64)),
                 constant(graph, Tensor({2, 3, 3, 3}, DType::kF64)));
    }
    SessionOptions options = on_gpus({1, 1});
    options.deterministic = true;
    Session session(graph, options);
    recorder().reset();
    constexpr int kNotSupported = 3000;
    if (refuses) recorder().fail("cudnnConvolutionForward", 0, kNotSupported);
    CompiledStep& step = session.prepare({y.node()});
    EXPECT_EQ(recorder().count("cudnnConvolutionForward"), 1);
    step.run();
    EXPECT_EQ(recorder().count("cudnnConvolutionForward"), refuses ? 1 : 2);
  }
}

// The stream's handle fails; the handle of the source of algorithms exists.
TEST_F(RecorderErrors, OfHandlesThatStrandsNeedAreFoundBeforeTheyRun) {
  Graph graph;
  Output y;
  {
    DeviceScope on(graph, gpu(0));
    y = conv2d(constant(graph, Tensor({1, 5, 5, 3}, DType::kF32)),
               constant(graph, Tensor({2, 3, 3, 3}, DType::kF32)));
  }
  { Session(graph, on_gpus({1, 1})).prepare({y}); }
  for (const char* function : {"cudnnCreate", "cudnnSetStream", "cudaMalloc", "cudaHostAlloc"}) {
    SCOPED_TRACE(function);
    Session session(graph, on_gpus({1, 1}));
    recorder().fail(function, 0, function[2] == 'd' ? 4000 : int{cudaErrorLaunchFailure});
    EXPECT_THAT(message_of<DeviceError>([&] { session.prepare({y}); }),
                ContainsRegex(cat(function, " failed.*(GPU 0|of the host)")));
    EXPECT_TRUE(recorder().failed());
    session.prepare({y});
  }
}

// The GPU does nothing any more, and reports it only to queries.
TEST_F(RecorderErrors, OfAGpuAreFoundByWhoeverWaits) {
  for (const Layout layout : {Layout{1, 1}, Layout{2, 1}})
    for (const int runs : {0, 1, kRuns}) {
      SCOPED_TRACE(cat(layout.physical, " GPUs, after ", runs, " runs"));
      Training training(layout);
      training.prepare();
      training.run(runs);
      recorder().lose_stamps(true);
      recorder().fail("cudaStreamQuery", 0, cudaErrorIllegalAddress);
      EXPECT_THAT(message_of<DeviceError>([&] { training.run(1); }),
                  ContainsRegex("a launch before cudaStreamQuery failed.*on GPU [01]"));
      recorder().mend();
      training.saved->restore();
      training.run(kRuns);
    }
}

// After such an error CUDA refuses every call.
TEST_F(RecorderErrors, ThatEndAContextEndNothingElse) {
  for (const int launch : {0, 20, 60}) {
    SCOPED_TRACE(launch);
    recorder().reset();
    Training training({2, 1});
    training.prepare();
    recorder().fail("cudaLaunchKernel", launch, cudaErrorIllegalAddress, true);
    EXPECT_THAT(message_of<DeviceError>([&] { training.run(kRuns); }),
                HasSubstr("cudaErrorIllegalAddress"));
    EXPECT_THROW(training.run(1), Error);
    EXPECT_THROW(training.saved->restore(), DeviceError);
    EXPECT_THROW(Session(training.model.graph, on_gpus({2, 1})), DeviceError);
  }
  recorder().reset();
  allow_leaks();  // memory of a failed GPU cannot be freed
}

}  // namespace errors_test
}  // namespace belfry::recorder
