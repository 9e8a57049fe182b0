#include "belfry/framework/cuda/runtime/cudnn_answers.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace belfry::cuda {
namespace cudnn_answers_test {

using testing::ElementsAre;

// Stands in for an answer of cuDNN.
struct Answer {
  int algo = 0;
  cudnnStatus_t status = CUDNN_STATUS_SUCCESS;
  cudnnDeterminism_t determinism = CUDNN_DETERMINISTIC;
  cudnnMathType_t mathType = CUDNN_FMA_MATH;
};

std::vector<CudnnAlgorithm> usable_of(std::vector<Answer> answers,
                                      cudnnStatus_t status = CUDNN_STATUS_SUCCESS) {
  const auto list = [&](int most, int* count, Answer* into) {
    EXPECT_GE(most, static_cast<int>(answers.size()));
    *count = static_cast<int>(answers.size());
    std::ranges::copy(answers, into);
    return status;
  };
  const auto size = [](int algorithm, std::size_t* bytes) {
    *bytes = static_cast<std::size_t>(100 * algorithm);
    return algorithm == 5 ? CUDNN_STATUS_NOT_SUPPORTED : CUDNN_STATUS_SUCCESS;
  };
  return usable<Answer>(CUDNN_FMA_MATH, list, size, {.device = "gpu:0"});
}

TEST(CudnnAnswers, KeepTheirOrderWithTheirWorkspace) {
  EXPECT_THAT(
      usable_of({{.algo = 3}, {.algo = 1, .determinism = CUDNN_NON_DETERMINISTIC}, {.algo = 0}}),
      ElementsAre(CudnnAlgorithm{3, 300, true}, CudnnAlgorithm{1, 100, false},
                  CudnnAlgorithm{0, 0, true}));
}

TEST(CudnnAnswers, ThatCannotRunAreLeftOut) {
  EXPECT_THAT(usable_of({{.algo = 3, .status = CUDNN_STATUS_NOT_SUPPORTED},
                         {.algo = 4, .status = CUDNN_STATUS_ALLOC_FAILED},
                         {.algo = 5},
                         {.algo = 1}}),
              ElementsAre(CudnnAlgorithm{1, 100, true}));
}

TEST(CudnnAnswers, ForAnotherMathComeLastAndOnce) {
  EXPECT_THAT(usable_of({{.algo = 6, .mathType = CUDNN_TENSOR_OP_MATH},
                         {.algo = 1, .mathType = CUDNN_DEFAULT_MATH},
                         {.algo = 2},
                         {.algo = 1, .determinism = CUDNN_NON_DETERMINISTIC}}),
              ElementsAre(CudnnAlgorithm{2, 200, true}, CudnnAlgorithm{1, 100, false},
                          CudnnAlgorithm{6, 600, true}));
}

TEST(CudnnAnswers, AreNoneWhereCudnnRefuses) {
  EXPECT_TRUE(usable_of({{.algo = 1}}, CUDNN_STATUS_NOT_SUPPORTED).empty());
  EXPECT_TRUE(usable_of({{.algo = 1}}, CUDNN_STATUS_NOT_SUPPORTED_SHAPE).empty());
  try {
    usable_of({}, CUDNN_STATUS_EXECUTION_FAILED);
    FAIL() << "a failure was taken for a refusal";
  } catch (const DeviceError& error) {
    EXPECT_THAT(error.what(), testing::EndsWith(", asking cuDNN for algorithms on gpu:0"));
  }
}

}  // namespace cudnn_answers_test
}  // namespace belfry::cuda
