// How the GPU module computes products and convolutions of whole models.
#include "belfry/trainers/models/models.h"

#include <cstring>

#include "belfry/framework/base/text.h"
#include "belfry/framework/core_ops/placeholder.h"
#include "belfry/framework/gradients/gradients.h"
#include "belfry/ops/convolution/conv2d.h"
#include "belfry/ops/convolution/conv2d_transpose.h"
#include "belfry/ops/sparse_softmax_cross_entropy.h"
#include "belfry/tests/recorder/library_calls.h"
#include "belfry/tests/recorder/recorder_support.h"
#include "belfry/trainers/core/trainer.h"
#include "belfry/trainers/core/trainer_kinds.h"
#include "belfry/trainers/data/synthetic_data.h"

namespace belfry::recorder {
namespace models_test {

using ::testing::Contains;
using ::testing::Each;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;
using ::testing::SizeIs;
using ::testing::StartsWith;
using ::testing::UnorderedElementsAre;

using RecorderModels = RecorderTest;

struct Way {
  Precision precision = Precision::kF32;
  bool deterministic = false;
  int batch = 2;
};

void train(const ModelSpec& spec, Layout layout, Way way, int steps = 1) {
  const int towers = layout.devices();
  const auto data = synthetic_data(spec.fields, spec.classes, towers * way.batch, 5);
  TrainerOptions options{
      .model = spec.model,
      .optimizer = spec.optimizer,
      .batch_size = way.batch,
      .epochs = steps,
      .precision = way.precision,
      .on_nonfinite = OnNonfinite::kContinue,  // nothing is computed
      .session = {
          .logical_gpus = layout.logical, .deterministic = way.deterministic, .threads = 2}};
  options.devices.clear();
  for (int t = 0; t < towers; ++t) options.devices.push_back(DeviceSpec::local("GPU", t));
  const auto trainer =
      std::make_unique<Trainer>(find_trainer("replicated"), std::move(options), *data);
  trainer->train();
  EXPECT_EQ(trainer->steps(), steps);
}

void train(const char* model, Layout layout, Way way, int steps = 1) {
  train(find_model(model, std::string_view(model) == "mnist" ? 28 : 8), layout, way, steps);
}

// The details of calls whose names begin with `start`.
std::vector<std::string> details(const char* start) {
  std::vector<std::string> all;
  for (const Call& call : recorder().calls())
    if (call.name.starts_with(start)) all.push_back(call.detail);
  return all;
}

TEST_F(RecorderModels, MultiplyAsTheirPrecisionSays) {
  struct Case {
    Precision precision;
    const char *convolutions, *products;
  };
  for (const auto& [precision, convolutions, products] :
       {Case{Precision::kF32, kExact, kExact}, Case{Precision::kTf32, kTf32, kTf32},
        Case{Precision::kBf16, kHalf, kExact}, Case{Precision::kF16, kHalf, kExact}}) {
    SCOPED_TRACE(name_of(precision));
    recorder().forget_calls();
    train("mnist", {1, 1}, {.precision = precision});
    EXPECT_THAT(details("cudnnConvolutionForward"), SizeIs(2));
    EXPECT_THAT(details("cudnnConvolutionBackwardData"), SizeIs(1));
    EXPECT_THAT(details("cudnnConvolutionBackwardFilter"), SizeIs(2));
    EXPECT_THAT(details("cudnnConvolution"), Each(StartsWith(convolutions)));
    EXPECT_THAT(details("cublasLtMatmul"), SizeIs(6));
    EXPECT_THAT(details("cublasLtMatmul"), Each(StartsWith(products)));
  }
}

TEST_F(RecorderModels, AreMeasuredOnceUnlessTheyAreDeterministic) {
  const auto asked = [](const char* how) {
    int count = 0;
    for (const auto& [function, calls] : recorder().counts())
      if (function.starts_with(how)) count += calls;
    return count;
  };
  for (const bool deterministic : {false, true}) {
    SCOPED_TRACE(deterministic);
    const Way way{.deterministic = deterministic, .batch = 3};
    recorder().reset();
    train("mnist", {1, 1}, way);
    EXPECT_THAT(details("cudnnConvolution"),
                Each(HasSubstr(cat("algorithm ", deterministic ? kSteady : kFast))));
    EXPECT_EQ(asked("cudnnFind"), deterministic ? 0 : 5);
    recorder().reset();
    train("mnist", {1, 1}, way);
    EXPECT_THAT(details("cudnnConvolution"), SizeIs(5));
    EXPECT_EQ(asked("cudnnFind"), 0);
    EXPECT_THAT(recorder().violations(), IsEmpty());
  }
}

TEST_F(RecorderModels, TellCudnnDilationAndGroups) {
  Graph graph;
  std::vector<Output> wanted;
  std::vector<FeedType> types;
  {
    DeviceScope on(graph, gpu(0));
    const Output x = placeholder(graph, "x", DType::kF32, {2, 9, 9, 6});
    const Output filter = placeholder(graph, "filter", DType::kF32, {4, 3, 3, 3});
    const Output y = conv2d(x, filter, {.dilation = 2, .groups = 2});
    wanted = gradients(y, {x, filter});
    wanted.push_back(y);
    const Output small = placeholder(graph, "small", DType::kF32, {2, 4, 4, 6});
    const Output spread = placeholder(graph, "spread", DType::kF32, {6, 3, 3, 1});
    wanted.push_back(conv2d_transpose(small, spread, {.stride = 2, .dilation = 3, .groups = 3}));
    for (const Output& fed : {x, filter, small, spread}) types.push_back({fed, fed.shape()});
  }
  Session session(graph, on_gpus({1, 1}));
  CompiledStep& step = session.prepare(std::vector<Fetch>(wanted.begin(), wanted.end()), types);
  std::vector<Tensor> feeds;
  for (const FeedType& type : types) feeds.emplace_back(type.shape, DType::kF32);
  recorder().forget_calls();
  step.run(feeds);
  EXPECT_THAT(details("cudnnConvolutionBackwardFilter"),
              ElementsAre(HasSubstr("exact, groups 2, dilation [2,2], algorithm ")));
  EXPECT_THAT(details("cudnnConvolutionBackwardData"),
              UnorderedElementsAre(HasSubstr("exact, groups 2, dilation [2,2], algorithm "),
                                   HasSubstr("exact, groups 3, dilation [3,3], algorithm ")));
  EXPECT_THAT(details("cudnnConvolutionForward"),
              ElementsAre(HasSubstr("exact, groups 2, dilation [2,2], algorithm ")));
  EXPECT_THAT(recorder().violations(), IsEmpty());
}

// The model has batch norm, which moves averages at the end of a step, and pooling by cuDNN.
TEST_F(RecorderModels, OfManyLayersBreakNoRule) {
  for (const Layout layout : {Layout{1, 1}, Layout{1, 2}, Layout{2, 1}}) {
    SCOPED_TRACE(cat(layout.physical, " x ", layout.logical));
    train("resnet20", layout, {.precision = Precision::kBf16}, 5);
    EXPECT_THAT(details("cudaGraphLaunch"), Not(IsEmpty()));
    EXPECT_THAT(recorder().violations(), IsEmpty());
  }
}

// The model has embeddings, row norms, attention and a head that shares the table; steps are
// captured.
TEST_F(RecorderModels, OfTransformersBreakNoRule) {
  ModelSpec spec =
      find_model("gpt", 0, {.label_smoothing = 0.1, .gpt = models::GptSize{.sequence_length = 12}});
  spec.model = [](Tower& tower, Output tokens, Output label) {
    return models::gpt(tower, tokens, label,
                       {.layers = 1, .heads = 2, .width = 16, .tie_embeddings = true});
  };
  for (const Layout layout : {Layout{1, 1}, Layout{1, 2}, Layout{2, 1}})
    for (const Precision precision : {Precision::kF32, Precision::kBf16, Precision::kF16}) {
      SCOPED_TRACE(cat(layout.physical, " x ", layout.logical, " in ", name_of(precision)));
      recorder().reset();
      train(spec, layout, {.precision = precision}, 5);
      EXPECT_THAT(details("cudaGraphLaunch"), Not(IsEmpty()));
      EXPECT_THAT(details("cudaLaunchKernel"), Contains(HasSubstr("MoveIndices")));
      EXPECT_THAT(details("cublasLtMatmul"), Not(IsEmpty()));
      EXPECT_THAT(recorder().violations(), IsEmpty());
    }
}

ModelSpec small_gpt() {
  ModelSpec spec = find_model("gpt", 0, {.gpt = models::GptSize{.sequence_length = 16}});
  spec.model = [](Tower& tower, Output tokens, Output label) {
    return models::gpt(tower, tokens, label, {.layers = 2, .heads = 2, .width = 32});
  };
  return spec;
}

std::vector<std::string> launched() { return details("cudaLaunchKernel"); }

// All works of the recorder take equally long, and cuDNN needs one where our kernels need several.
// So cuDNN is faster.
TEST_F(RecorderModels, MeasureAttentionOnceAndKeepTheFasterWay) {
  for (const Precision precision : {Precision::kBf16, Precision::kF16}) {
    SCOPED_TRACE(name_of(precision));
    recorder().reset();
    train(small_gpt(), {1, 1}, {.precision = precision, .batch = 5});
    EXPECT_EQ(recorder().count("cudaEventElapsedTime"), 2 * (2 + 1));
    const std::vector<std::string> all = details("cudnnBackendExecute");
    for (const char* graph : {"forward", "gradient"})
      for (const int configuration : {0, 1})
        EXPECT_THAT(all, Contains(cat(graph, ", configuration ", configuration)));
    EXPECT_THAT(launched(), Contains(HasSubstr("WeighQueries")));
    EXPECT_THAT(launched(), Contains(HasSubstr("ScoreGradients")));
    EXPECT_THAT(recorder().violations(), IsEmpty());
    for (const Layout layout : {Layout{1, 1}, Layout{1, 2}, Layout{2, 1}}) {
      SCOPED_TRACE(cat(layout.physical, " x ", layout.logical));
      recorder().reset();
      train(small_gpt(), layout, {.precision = precision, .batch = 5}, 5);  // captures, replays
      EXPECT_EQ(recorder().count("cudaEventElapsedTime"), 0);
      const std::vector<std::string> steps = details("cudnnBackendExecute");
      EXPECT_THAT(steps, Contains("forward, configuration 0"));
      EXPECT_THAT(steps, Contains("gradient, configuration 0"));
      EXPECT_THAT(steps, Each(HasSubstr(", configuration 0")));
      EXPECT_THAT(launched(), Not(Contains(HasSubstr("WeighQueries"))));
      EXPECT_THAT(details("cudaGraphLaunch"), Not(IsEmpty()));
      EXPECT_THAT(recorder().violations(), IsEmpty());
    }
  }
}

TEST_F(RecorderModels, TakeNoAttentionOfCudnnWhoseResultsDifferFromOurs) {
  recorder().spoil("cudnnBackendExecute");
  testing::internal::CaptureStderr();
  train(small_gpt(), {1, 1}, {.precision = Precision::kBf16, .batch = 7});
  EXPECT_THAT(testing::internal::GetCapturedStderr(),
              ::testing::ContainsRegex("CausalAttention bf16 .*: cuDNN's result 0 differs from "
                                       "that of kernels of Belfry by .*; it is not used"));
  recorder().reset();
  train(small_gpt(), {1, 1}, {.precision = Precision::kBf16, .batch = 7}, 3);
  EXPECT_THAT(details("cudnnBackendExecute"), IsEmpty());
  EXPECT_THAT(launched(), Contains(HasSubstr("WeighQueries")));
  EXPECT_THAT(recorder().violations(), IsEmpty());
}

TEST_F(RecorderModels, NeverAskCudnnForAttentionThatIsDeterministicOrNotIn16Bits) {
  for (const Way way : {Way{.precision = Precision::kBf16, .deterministic = true},
                        Way{.precision = Precision::kF16, .deterministic = true},
                        Way{.precision = Precision::kF32}, Way{.precision = Precision::kTf32}}) {
    SCOPED_TRACE(cat(name_of(way.precision), " ", way.deterministic));
    recorder().reset();
    train(small_gpt(), {1, 1}, way);
    EXPECT_EQ(recorder().count("cudnnBackendCreateDescriptor"), 0);
    EXPECT_EQ(recorder().count("cudaEventElapsedTime"), 0);
    EXPECT_EQ(testing::Value(launched(), Contains(HasSubstr("WeighQueries"))),
              way.precision != Precision::kF32);
    EXPECT_THAT(recorder().violations(), IsEmpty());
  }
}

// cuDNN refuses the forward graph, so our kernels attend; cuDNN computes the gradient from their
// results.
TEST_F(RecorderModels, AttendByOurKernelsWhereCudnnRefusesTheGraph) {
  constexpr int kNotSupported = 3000;
  recorder().fail("cudnnBackendFinalize", 0, kNotSupported);
  train(small_gpt(), {1, 1}, {.precision = Precision::kBf16, .batch = 3}, 3);
  EXPECT_TRUE(recorder().failed());
  EXPECT_THAT(launched(), Contains(HasSubstr("WeighQueries")));
  EXPECT_THAT(details("cudnnBackendExecute"), Not(IsEmpty()));
  EXPECT_THAT(details("cudnnBackendExecute"), Each(StartsWith("gradient")));
  EXPECT_THAT(recorder().violations(), IsEmpty());
}

// The address, as GPUs see it, where a kernel notes input that it refuses. No other memory has the
// size of this memory.
std::uint64_t* fault_of(const char* kernel) {
  constexpr std::size_t kFaults = (1 << 16) * sizeof(std::uint64_t);
  for (const Call& call : recorder().calls()) {
    if (call.detail.find(kernel) == call.detail.npos) continue;
    for (std::size_t i = 0; i + sizeof(void*) <= call.bytes.size(); i += sizeof(void*)) {
      void* word = nullptr;
      std::memcpy(&word, &call.bytes[i], sizeof word);
      if (recorder().bytes_of(word) == kFaults)
        return static_cast<std::uint64_t*>(recorder().behind(word));
    }
  }
  return nullptr;
}

// In each stream the faults come before the stamp that tells the host of them.
void expect_faults_before_stamps() {
  std::map<Stream*, std::string> last;
  int stamps = 0;
  for (const Call& call : recorder().calls()) {
    if (call.detail.find("store_behind") != call.detail.npos) {
      ++stamps;
      EXPECT_EQ(last[call.stream], "cudaMemcpyAsync");
    }
    last[call.stream] = call.name;
  }
  EXPECT_GT(stamps, 0);
}

TEST_F(RecorderModels, SayWhatKernelsRefuseWhenTheStepEnds) {
  Graph graph;
  Output loss;
  std::vector<FeedType> types;
  {
    DeviceScope on(graph, gpu(0));
    const Output logits = placeholder(graph, "logits", DType::kF32, {4, 3});
    const Output labels = placeholder(graph, "labels", DType::kI32, {4});
    loss = cross_entropy(logits, labels);
    types = {{logits, {4, 3}}, {labels, {4}}};
  }
  Session session(graph, on_gpus({1, 1}));
  CompiledStep& step = session.prepare(std::vector<Fetch>{loss}, types);
  const std::vector<Tensor> feeds{Tensor({4, 3}, DType::kF32), Tensor({4}, DType::kI32)};
  step.run(feeds);
  expect_faults_before_stamps();
  std::uint64_t* const fault = fault_of("LossRow");
  ASSERT_TRUE(fault);
  for (int run = 1; run < 5; ++run) {
    *fault = (std::uint64_t{2} << 32) | (std::uint64_t{1} << 31 | 9);  // as a kernel notes it
    EXPECT_THAT(message_of<InvalidArgument>([&] { step.run(feeds); }),
                AllOf(HasSubstr("SparseSoftmaxCrossEntropy"), HasSubstr("9"), HasSubstr("2")));
    recorder().forget_calls();
    step.run(feeds);
    expect_faults_before_stamps();
  }
}

}  // namespace models_test
}  // namespace belfry::recorder
