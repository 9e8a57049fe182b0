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

// Stands in for the libraries of a GPU.
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
  std::vector<CudnnAlgorithm> ranked(const Attention& attention) override {
    calls.push_back("ranked " + attention.str());
    return by_rank;
  }
  std::vector<double> seconds(const Attention&, std::span<const CudnnAlgorithm> algorithms,
                              const OwnKernel& ours) override {
    std::vector<double> all;
    std::string call = "time";
    for (const CudnnAlgorithm& algorithm : algorithms) {
      call += cat(" ", algorithm.number);
      all.push_back(takes.at(algorithm.number));
    }
    all.push_back(ours_takes);
    calls.push_back(cat(call, " ours of ", ours.workspace_bytes));
    return all;
  }

  std::vector<CudnnAlgorithm> ranked(const Recurrence& recurrence) override {
    calls.push_back("ranked " + recurrence.str());
    return by_rank;
  }
  // The kernels' workspaces say which they are.
  std::vector<double> seconds(const Recurrence&,
                              std::span<const RecurrenceKernels> kernels) override {
    std::vector<double> all;
    std::string call = "time";
    for (const RecurrenceKernels& of : kernels) {
      const auto number = static_cast<int>(of.forward.workspace_bytes);
      call += cat(" ", number);
      all.push_back(number < 0 ? ours_takes : takes.at(number));
    }
    calls.push_back(call);
    return all;
  }

  std::string gpu = "NVIDIA H200";
  CudnnAlgorithm refused{.number = -1};  // refused when it computes
  std::vector<CudnnAlgorithm> by_rank{kFast, kSteady, kSlow};
  std::vector<CudnnAlgorithm> by_time{kFast, kSlow, kSteady};
  std::map<int, double> takes{{5, 1e-3}, {1, 4e-3}, {0, 3e-3}};  // by number, attention alone
  double ours_takes = 2e-3;
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

constexpr double kNever = AlgorithmSource::kNever;
const Attention kAttention{.batch = 64, .time = 256, .heads = 6, .head_dim = 64};
constexpr const char* kAttentionName = "CausalAttention bf16 [64,256,6,64]";

OwnKernel make_ours() { return {.workspace_bytes = 320}; }

TEST(AlgorithmProvider, MeasuresAttentionByCudnnAndByUsOnce) {
  FakeSource source;
  AlgorithmTable table;
  AlgorithmProvider provider(source, table, {});
  EXPECT_EQ(provider.attention(kAttention, make_ours), kFast);
  EXPECT_EQ(AlgorithmProvider(source, table, {}).attention(kAttention, nullptr), kFast);
  EXPECT_THAT(source.calls, ElementsAre(cat("ranked ", kAttentionName), "time 5 1 0 ours of 320"));
  const auto* kept = table.find(cat(kAttentionName, " on NVIDIA H200, cuDNN 9.19.0"));
  ASSERT_NE(kept, nullptr);
  EXPECT_EQ(*kept, kFast);
}

TEST(AlgorithmProvider, KeepsThatOursAttendsFaster) {
  FakeSource source;
  source.ours_takes = 0.5e-3;
  AlgorithmTable table;
  testing::internal::CaptureStderr();
  EXPECT_EQ(AlgorithmProvider(source, table, {}).attention(kAttention, make_ours), std::nullopt);
  EXPECT_EQ(AlgorithmProvider(source, table, {}).attention(kAttention, nullptr), std::nullopt);
  EXPECT_EQ(testing::internal::GetCapturedStderr(),
            cat("I ", kAttentionName, ": 1 ms by cuDNN, 0.5 ms by kernels of Belfry\n"));
  EXPECT_EQ(source.calls.size(), 2u);
  AlgorithmTable read;
  read.read(table.str(), "a.json");
  EXPECT_EQ(AlgorithmProvider(source, read, {}).attention(kAttention, nullptr), std::nullopt);
  EXPECT_EQ(source.calls.size(), 2u);
}

// The log has no warning, as our kernels are no plain loops.
TEST(AlgorithmProvider, LeavesAttentionToUsThatCudnnRefuses) {
  FakeSource source;
  source.by_rank = {};
  AlgorithmTable table;
  testing::internal::CaptureStderr();
  EXPECT_EQ(AlgorithmProvider(source, table, {}).attention(kAttention, nullptr), std::nullopt);
  EXPECT_EQ(testing::internal::GetCapturedStderr(), "");
  source.by_rank = {kFast, kSlow};
  source.takes = {{5, kNever}, {0, kNever}};
  source.ours_takes = kNever;  // there was no memory to try
  AlgorithmTable another;
  EXPECT_EQ(AlgorithmProvider(source, another, {}).attention(kAttention, make_ours), std::nullopt);
}

TEST(AlgorithmProvider, MeasuresAttentionThatFitsItsWorkspace) {
  FakeSource source;
  AlgorithmTable table;
  AlgorithmProvider provider(source, table, {.most_workspace_bytes = 4096});
  EXPECT_EQ(provider.attention(kAttention, make_ours), std::nullopt);
  EXPECT_EQ(source.calls.back(), "time 1 0 ours of 320");
}

// This holds whatever the table has, which may come from a file.
TEST(AlgorithmProvider, LeavesDeterministicAttentionToUs) {
  FakeSource source;
  AlgorithmTable table;
  AlgorithmProvider(source, table, {}).attention(kAttention, make_ours);
  source.calls.clear();
  AlgorithmProvider provider(source, table, {.deterministic = true});
  EXPECT_EQ(provider.attention(kAttention, nullptr), std::nullopt);
  EXPECT_THAT(source.calls, testing::IsEmpty());
}

const Recurrence kRecurrence{
    .cell = Recurrence::Cell::kGru, .batch = 64, .time = 128, .features = 100, .hidden = 256};
constexpr const char* kRecurrenceName = "Gru f32 x [64,128,100] hidden 256";

// Ours have the workspace -1, the others the number of their algorithm.
RecurrenceKernels make_recurrence(const std::optional<CudnnAlgorithm>& algorithm) {
  return {.forward = {.workspace_bytes = algorithm ? algorithm->number : -1}};
}

TEST(AlgorithmProvider, MeasuresRecurrencesByCudnnAndByUsOnce) {
  FakeSource source;
  AlgorithmTable table;
  EXPECT_EQ(AlgorithmProvider(source, table, {}).recurrence(kRecurrence, make_recurrence), kFast);
  EXPECT_EQ(AlgorithmProvider(source, table, {}).recurrence(kRecurrence, nullptr), kFast);
  EXPECT_THAT(source.calls, ElementsAre(cat("ranked ", kRecurrenceName), "time 5 1 0 -1"));
  EXPECT_NE(table.find(cat(kRecurrenceName, " on NVIDIA H200, cuDNN 9.19.0")), nullptr);
}

// Because it is slow, has other results, or refuses the call.
TEST(AlgorithmProvider, LeavesRecurrencesToUsWhereCudnnIsNoBetter) {
  for (const double takes : {3e-3, kNever}) {
    FakeSource source;
    source.takes = {{5, takes}, {1, takes}, {0, takes}};
    AlgorithmTable table;
    AlgorithmProvider provider(source, table, {});
    EXPECT_EQ(provider.recurrence(kRecurrence, make_recurrence), std::nullopt);
    EXPECT_EQ(provider.recurrence(kRecurrence, nullptr), std::nullopt);
    EXPECT_EQ(source.calls.size(), 2u);
  }
}

TEST(AlgorithmProvider, LeavesDeterministicRecurrencesToUs) {
  FakeSource source;
  AlgorithmTable table;
  AlgorithmProvider provider(source, table, {.deterministic = true});
  EXPECT_EQ(provider.recurrence(kRecurrence, nullptr), std::nullopt);
  EXPECT_TRUE(source.calls.empty());
}

}  // namespace algorithm_provider_test
}  // namespace belfry::cuda
