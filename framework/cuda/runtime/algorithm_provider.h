// Chooses algorithms, once for each call, according to the answers of a GPU's libraries.
#pragma once
#include <functional>
#include <limits>
#include <map>
#include <span>
#include <vector>

#include "belfry/framework/cuda/kernels/algorithms.h"
#include "belfry/framework/cuda/runtime/algorithm_table.h"

namespace belfry::cuda {

// The provider's questions to the libraries; in tests, fakes answer them.
class AlgorithmSource {
 public:
  virtual ~AlgorithmSource() = default;
  // "NVIDIA H200, cuDNN 9.19.0": choices hold only for this machine.
  virtual std::string machine() const = 0;
  // The algorithms that cuDNN lists; it expects the first to be the fastest.
  virtual std::vector<CudnnAlgorithm> ranked(const Convolution& convolution) = 0;
  // The algorithms that cuDNN has, in order of measured time.
  virtual std::vector<CudnnAlgorithm> measured(const Convolution& convolution) = 0;
  // Whether cuDNN computes the convolution by an algorithm that it has listed.
  virtual bool convolves(const Convolution& convolution, const CudnnAlgorithm& algorithm) = 0;
  // Whether cuDNN computes it.
  virtual bool pools(const Pooling& pooling) = 0;
  virtual MatMulAlgorithm matmul(const MatMul& matmul) = 0;
  // The algorithms that cuDNN has, in its order.
  virtual std::vector<CudnnAlgorithm> ranked(const Attention& attention) = 0;
  // The time of each algorithm, with `ours` last. kNever: cuDNN does not compute it after all, its
  // results differ from ours, or there is too little memory to try it.
  static constexpr double kNever = std::numeric_limits<double>::infinity();
  virtual std::vector<double> seconds(const Attention& attention,
                                      std::span<const CudnnAlgorithm> algorithms,
                                      const OwnKernel& ours) = 0;
  // The algorithms that cuDNN has.
  virtual std::vector<CudnnAlgorithm> ranked(const Recurrence& recurrence) = 0;
  // The time of each, for both passes, with our kernels last.
  virtual std::vector<double> seconds(const Recurrence& recurrence,
                                      std::span<const RecurrenceKernels> kernels) = 0;
};

struct AlgorithmOptions {
  // Measures nothing. Convolutions take the first deterministic algorithm by rank that works;
  // attention and recurrences take our own kernels, which are deterministic.
  bool deterministic = false;
  std::int64_t most_workspace_bytes = std::int64_t{1} << 30;
};

// Chooses an algorithm for each convolution once, and keeps the choice in the table. Also for
// attention and recurrences, unless the options are deterministic. The log says, once per table,
// which convolutions and poolings cuDNN does not compute, and how long attention and recurrences
// take with cuDNN and with our own kernels. For one thread at a time.
class AlgorithmProvider final : public Algorithms {
 public:
  // `source` and `table` must outlive the provider. Several providers may share one table.
  AlgorithmProvider(AlgorithmSource& source, AlgorithmTable& table, AlgorithmOptions options)
      : source_(source), table_(table), options_(options) {}

  MatMulAlgorithm matmul(const MatMul& matmul) override { return source_.matmul(matmul); }
  // Throws InvalidArgument for a choice of the table that the options do not allow.
  std::optional<CudnnAlgorithm> convolution(const Convolution& convolution) override;
  bool pooling(const Pooling& pooling) override;
  std::optional<CudnnAlgorithm> attention(const Attention& attention,
                                          const MakeOwnKernel& ours) override;
  std::optional<CudnnAlgorithm> recurrence(const Recurrence& recurrence,
                                           const MakeRecurrence& make) override;

 private:
  using Choice = AlgorithmTable::Choice;

  // The table's choice for `what`, or else that of choose(), which the table then keeps.
  Choice kept(const std::string& what, const std::function<Choice()>& choose);
  Choice choose(const Convolution& convolution);
  Choice choose(const Attention& attention, const MakeOwnKernel& ours);
  Choice choose(const Recurrence& recurrence, const MakeRecurrence& make);
  bool fits(const CudnnAlgorithm& algorithm) const {
    return algorithm.workspace_bytes <= options_.most_workspace_bytes;
  }
  void say_ours(const std::string& what, const std::string& why);

  AlgorithmSource& source_;
  AlgorithmTable& table_;
  AlgorithmOptions options_;
  std::map<Pooling, bool> poolings_;
};

}  // namespace belfry::cuda
