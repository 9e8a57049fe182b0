#include "belfry/framework/cuda/runtime/algorithm_provider.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "belfry/framework/base/text.h"

namespace belfry::cuda {
namespace algorithm_provider_test {

using testing::ElementsAre;

constexpr CudnnAlgorithm kFast{5, 2 << 20, false};
constexpr CudnnAlgorithm kSteady{1, 4096, true};
constexpr CudnnAlgorithm kSlow{0, 0, true};

// The libraries of a GPU, as tests have them.
class FakeSource final : public AlgorithmSource {
 public:
  std::string machine() const override { return gpu + ", cuDNN 9.19.0"; }
  std::vector<CudnnAlgorithm> ranked(const Convolution& convolution) override {
    calls.push_back("ranked " + convolution.str());
    return by_rank;
  }
  std::vector<CudnnAlgorithm> measured(const Convolution& convolution) override {
    calls.push_back("measured " + convolution.str());
    return by_time;
  }
  bool convolves(const Convolution&, const CudnnAlgorithm& algorithm) override {
    calls.push_back(cat("try ", algorithm.number));
    return algorithm != refused;
  }
  bool pools(const Pooling& pooling) override {
    calls.push_back(pooling.str());
    return pooling.dtype == DType::kF32;
  }
  MatMulAlgorithm matmul(const MatMul&) override {
    calls.push_back("matmul");
    return {.algorithm = {7, 8}, .workspace_bytes = 192};
  }

  std::string gpu = "NVIDIA H200";
  CudnnAlgorithm refused{.number = -1};  // when it is to compute
  std::vector<CudnnAlgorithm> by_rank{kFast, kSteady, kSlow};
  std::vector<CudnnAlgorithm> by_time{kFast, kSlow, kSteady};
  std::vector<std::string> calls;
};

const Convolution kConvolution{
    .x = {64, 28, 28, 1}, .filter = {32, 5, 5, 1}, .y = {64, 28, 28, 32}, .padding = {2, 2}};
constexpr const char* kName =
    "Conv2d f32 x [64,28,28,1] filter [32,5,5,1] y [64,28,28,32] padding [2,2] stride [1,1]";

TEST(AlgorithmProvider, MeasuresOnce) {
  FakeSource source;
  AlgorithmTable table;
  AlgorithmProvider provider(source, table, {});
  EXPECT_EQ(provider.convolution(kConvolution), kFast);
  EXPECT_EQ(provider.convolution(kConvolution), kFast);
  EXPECT_THAT(source.calls, ElementsAre(cat("measured ", kName)));
  const auto* kept = table.find(cat(kName, " on NVIDIA H200, cuDNN 9.19.0"));
  ASSERT_NE(kept, nullptr);
  EXPECT_EQ(*kept, kFast);
  AlgorithmProvider other(source, table, {});
  EXPECT_EQ(other.convolution(kConvolution), kFast);
  EXPECT_EQ(source.calls.size(), 1u);
}

TEST(AlgorithmProvider, NeverMeasuresToBeDeterministic) {
  FakeSource source;
  AlgorithmTable table;
  AlgorithmProvider provider(source, table, {.deterministic = true});
  EXPECT_EQ(provider.convolution(kConvolution), kSteady);  // the first by rank, not by time
  EXPECT_THAT(source.calls, ElementsAre(cat("ranked ", kName), "try 1"));
}

// A list is no promise: cuDNN has refused in a run what it had listed.
TEST(AlgorithmProvider, PassesOverListedAlgorithmsThatDoNotCompute) {
  FakeSource source;
  source.refused = kSteady;
  AlgorithmTable table;
  AlgorithmProvider provider(source, table, {.deterministic = true});
  EXPECT_EQ(provider.convolution(kConvolution), kSlow);
  EXPECT_EQ(provider.convolution(kConvolution), kSlow);
  EXPECT_THAT(source.calls, ElementsAre(cat("ranked ", kName), "try 1", "try 0"));
}

TEST(AlgorithmProvider, TakesTheFirstThatFitsItsWorkspace) {
  FakeSource source;
  AlgorithmTable table;
  AlgorithmProvider provider(source, table, {.most_workspace_bytes = 4096});
  EXPECT_EQ(provider.convolution(kConvolution), kSlow);
  AlgorithmTable another;
  AlgorithmProvider exact(source, another, {.deterministic = true, .most_workspace_bytes = 4096});
  EXPECT_EQ(exact.convolution(kConvolution), kSteady);
}

TEST(AlgorithmProvider, ChoosesPerConvolutionAndMachine) {
  FakeSource source;
  AlgorithmTable table;
  AlgorithmProvider provider(source, table, {.deterministic = true});
  provider.convolution(kConvolution);
  Convolution other = kConvolution;
  other.kind = Convolution::Kind::kGradFilter;
  source.by_rank = {kSlow};
  EXPECT_EQ(provider.convolution(other), kSlow);
  EXPECT_EQ(provider.convolution(kConvolution), kSteady);
  FakeSource elsewhere;
  elsewhere.gpu = "NVIDIA A100";
  elsewhere.by_rank = {kSlow};
  EXPECT_EQ(AlgorithmProvider(elsewhere, table, {.deterministic = true}).convolution(kConvolution),
            kSlow);
}

TEST(AlgorithmProvider, TakesWhatAFileSays) {
  FakeSource first;
  AlgorithmTable written;
  AlgorithmProvider(first, written, {}).convolution(kConvolution);
  AlgorithmTable table;
  table.read(written.str(), "a.json");
  FakeSource source;
  EXPECT_EQ(AlgorithmProvider(source, table, {}).convolution(kConvolution), kFast);
  EXPECT_TRUE(source.calls.empty());
}

TEST(AlgorithmProvider, RefusesChoicesOfAFileThatAreNotDeterministic) {
  FakeSource source;
  AlgorithmTable table;
  AlgorithmProvider(source, table, {}).convolution(kConvolution);
  AlgorithmProvider provider(source, table, {.deterministic = true});
  try {
    provider.convolution(kConvolution);
    FAIL() << "it was taken";
  } catch (const InvalidArgument& error) {
    EXPECT_EQ(
        error.what(),
        cat("algorithm 5 of ", kName,
            " on NVIDIA H200, cuDNN 9.19.0 was chosen for steps that need not repeat "
            "(the option deterministic), and does not; name another file (the option algorithms)"));
  }
}

TEST(AlgorithmProvider, SaysOnceWhatCudnnDoesNotCompute) {
  FakeSource source;
  source.by_rank = {kFast};
  AlgorithmTable table;
  testing::internal::CaptureStderr();
  for (int gpu = 0; gpu < 2; ++gpu) {
    AlgorithmProvider provider(source, table, {.deterministic = true});
    EXPECT_EQ(provider.convolution(kConvolution), std::nullopt);
    EXPECT_EQ(provider.convolution(kConvolution), std::nullopt);
  }
  EXPECT_EQ(testing::internal::GetCapturedStderr(),
            cat("I ", kName,
                ": computed by a plain kernel of Belfry; cuDNN has no deterministic algorithm for "
                "it in 1024 MiB of workspace\n"));
  EXPECT_THAT(source.calls, ElementsAre(cat("ranked ", kName)));
}

TEST(AlgorithmProvider, AsksOnceWhetherCudnnPools) {
  FakeSource source;
  AlgorithmTable table;
  AlgorithmProvider provider(source, table, {});
  Pooling pooling{.x = {2, 4, 4, 3}, .y = {2, 2, 2, 3}, .window = {2, 2}, .stride = {2, 2}};
  EXPECT_TRUE(provider.pooling(pooling));
  EXPECT_TRUE(provider.pooling(pooling));
  pooling.dtype = DType::kF64;
  testing::internal::CaptureStderr();
  EXPECT_FALSE(provider.pooling(pooling));
  EXPECT_FALSE(provider.pooling(pooling));
  EXPECT_EQ(
      testing::internal::GetCapturedStderr(),
      cat("I ", pooling, ": computed by a plain kernel of Belfry; cuDNN does not compute it\n"));
  EXPECT_EQ(source.calls.size(), 2u);
}

TEST(AlgorithmProvider, AsksCublasLtForEachProduct) {
  FakeSource source;
  AlgorithmTable table;
  AlgorithmProvider provider(source, table, {.deterministic = true});
  const MatMulAlgorithm algorithm = provider.matmul({});
  EXPECT_EQ(algorithm.algorithm[1], 8u);
  EXPECT_EQ(algorithm.workspace_bytes, 192);
  EXPECT_THAT(source.calls, ElementsAre("matmul"));
}

}  // namespace algorithm_provider_test
}  // namespace belfry::cuda
