// Convolution and average pooling by cuDNN, with NHWC images and OHWI filters, as in our own
// kernels. No other source calls its functions for these. Its handle also computes attention and
// recurrences.
#pragma once
#include <map>
#include <utility>
#include <vector>

#include "belfry/framework/cuda/kernels/calls.h"
#include "belfry/framework/cuda/runtime/cudnn_attention.h"
#include "belfry/framework/cuda/runtime/cudnn_recurrence.h"
#include "belfry/framework/cuda/runtime/handles.h"
#include "belfry/framework/cuda/runtime/where.h"

namespace belfry::cuda {

using FilterDescriptor = Owned<cudnnFilterDescriptor_t, cudnnDestroyFilterDescriptor>;
using ConvolutionDescriptor =
    Owned<cudnnConvolutionDescriptor_t, cudnnDestroyConvolutionDescriptor>;
using PoolingDescriptor = Owned<cudnnPoolingDescriptor_t, cudnnDestroyPoolingDescriptor>;

struct ConvolutionDescriptors {
  TensorDescriptor x, y;
  FilterDescriptor filter;
  ConvolutionDescriptor convolution;
};
struct PoolingDescriptors {
  TensorDescriptor x, y;
  PoolingDescriptor pooling;
};

// These functions need no GPU, and throw DeviceError if cuDNN refuses the call.
// f32 is multiplied in CUDNN_FMA_MATH unless tf32 is requested, because cuDNN's default permits
// tf32.
ConvolutionDescriptors describe(const Convolution& convolution, const Where& where);
PoolingDescriptors describe(const Pooling& pooling, const Where& where);
// The shape that cuDNN computes for y, {n, h, w, c}.
std::array<int, 4> output_shape(const ConvolutionDescriptors& of, const Where& where);
std::array<int, 4> output_shape(const PoolingDescriptors& of, const Where& where);
// Whether the descriptors can be made and give y.
bool describable(const Pooling& pooling, const Where& where);

// A handle of cuDNN on the GPU that is current when its functions are called. For one thread at a
// time.
class Cudnn {
 public:
  // Work goes to this stream; null is the legacy stream.
  explicit Cudnn(cudaStream_t stream = nullptr) : stream_(stream) {}

  // Makes the handle if there is none. So do the functions below.
  void get_ready(const Where& where);

  // The algorithms that cuDNN has for it; cuDNN expects the first to be the fastest. None if it
  // refuses all.
  std::vector<CudnnAlgorithm> ranked(const Convolution& convolution, const Where& where);
  // The same algorithms in order of measured time. Allocates and waits.
  std::vector<CudnnAlgorithm> measured(const Convolution& convolution, const Where& where);

  // Whether cuDNN computes the call. It may refuse what it has listed, so this and pools() try it
  // on one image; they allocate and wait.
  bool convolves(const Convolution& convolution, const CudnnAlgorithm& algorithm,
                 const Where& where);
  // False for tensors of 2^31 elements or more, because cuDNN's kernels also count in int.
  bool pools(const Pooling& pooling, const Where& where);

  void convolve(const ConvolutionCall& call, const Where& where);
  void pool(const PoolingCall& call, const Where& where);
  void attend(const AttentionCall& call, const Where& where);
  // Like attend(); false if cuDNN refuses the call.
  bool attends(const AttentionCall& call, const Where& where);

  // The algorithms that cuDNN has for it, and that fit in its saved_bytes.
  std::vector<CudnnAlgorithm> ranked(const Recurrence& recurrence, const Where& where);
  void recur(const RecurrenceCall& call, const Where& where);
  void recur_back(const RecurrenceGradCall& call, const Where& where);

 private:
  const ConvolutionDescriptors& described(const Convolution& convolution, const Where& where);
  std::vector<CudnnAlgorithm> algorithms(const Convolution& convolution, bool measured,
                                         const Where& where);
  // The workspace of the algorithm with this number.
  cudnnStatus_t workspace(const Convolution& convolution, int number, std::size_t* bytes,
                          const Where& where);
  cudnnStatus_t enqueue(const ConvolutionCall& call, const Where& where);
  cudnnStatus_t enqueue(const PoolingCall& call, const Where& where);
  cudnnStatus_t enqueue(const AttentionCall& call, const Where& where);
  const CudnnRecurrence& described(const Recurrence& recurrence, int number, const Where& where);

  cudaStream_t stream_;
  CudnnHandle handle_;
  // Made in the first run of each.
  std::map<Convolution, ConvolutionDescriptors> convolutions_;
  std::map<Pooling, PoolingDescriptors> poolings_;
  std::map<std::pair<Attention, int>, CudnnAttention> attentions_;  // by number of the algorithm
  std::map<std::pair<Recurrence, int>, CudnnRecurrence> recurrences_;
};

}  // namespace belfry::cuda
