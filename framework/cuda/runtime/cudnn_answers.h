// cuDNN's answers about the algorithms of a convolution.
#pragma once
#include <algorithm>
#include <array>
#include <vector>

#include "belfry/framework/base/text.h"
#include "belfry/framework/cuda/kernels/calls.h"
#include "belfry/framework/cuda/runtime/cuda_check.h"
#include "belfry/framework/cuda/runtime/where.h"

namespace belfry::cuda {

// cuDNN has no kernel for the call, which is not an error.
inline bool refused(cudnnStatus_t status) {
  return CUDNN_STATUS_CATEGORY(static_cast<int>(status)) == CUDNN_STATUS_NOT_SUPPORTED;
}

// The usable algorithms for one kind of convolution. list(most, &count, answers) gets cuDNN's
// answers, and size(algorithm, &bytes) the workspace of one. Answers for another math type come
// last: they are usable if cuDNN has a workspace for them with the convolution's own type.
template <class Answer, class List, class Size>
std::vector<CudnnAlgorithm> usable(cudnnMathType_t math, const List& list, const Size& size,
                                   const Where& where) {
  std::array<Answer, 32> answers{};
  int count = 0;
  const cudnnStatus_t status = list(static_cast<int>(answers.size()), &count, answers.data());
  if (refused(status)) return {};
  if (status != CUDNN_STATUS_SUCCESS)
    fail(status, "cuDNN", cat("asking cuDNN for algorithms ", where));
  std::stable_partition(answers.begin(), answers.begin() + count,
                        [&](const Answer& answer) { return answer.mathType == math; });
  std::vector<CudnnAlgorithm> algorithms;
  for (int i = 0; i < count; ++i) {
    const Answer& answer = answers[static_cast<std::size_t>(i)];
    const int number = static_cast<int>(answer.algo);
    std::size_t bytes = 0;
    if (answer.status != CUDNN_STATUS_SUCCESS ||
        std::ranges::count(algorithms, number, &CudnnAlgorithm::number) > 0 ||
        size(answer.algo, &bytes) != CUDNN_STATUS_SUCCESS)
      continue;
    algorithms.push_back({.number = number,
                          .workspace_bytes = static_cast<std::int64_t>(bytes),
                          .deterministic = answer.determinism == CUDNN_DETERMINISTIC});
  }
  return algorithms;
}

}  // namespace belfry::cuda
