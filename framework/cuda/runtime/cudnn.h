// Convolution and average pooling by cuDNN: the only sources that know its functions of these. It
// has NHWC images and OHWI filters, as we do.
#pragma once
#include <map>
#include <utility>
#include <vector>

#include "belfry/framework/cuda/kernels/calls.h"
#include "belfry/framework/cuda/runtime/cudnn_attention.h"
#include "belfry/framework/cuda/runtime/handles.h"
#include "belfry/framework/cuda/runtime/where.h"

namespace belfry::cuda {

using TensorDescriptor = Owned<cudnnTensorDescriptor_t, cudnnDestroyTensorDescriptor>;
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

// These need no GPU. Throw DeviceError if cuDNN refuses them.
// Elements of f32 are multiplied in CUDNN_FMA_MATH unless tf32 is asked for: the default permits
// it.
ConvolutionDescriptors describe(const Convolution& convolution, const Where& where);
PoolingDescriptors describe(const Pooling& pooling, const Where& where);
// The shape that cuDNN computes for y, {n, h, w, c}.
std::array<int, 4> output_shape(const ConvolutionDescriptors& of, const Where& where);
std::array<int, 4> output_shape(const PoolingDescriptors& of, const Where& where);
// Whether the descriptors can be made and give y.
bool describable(const Pooling& pooling, const Where& where);

// A handle of cuDNN on the GPU that is current where its functions are called. For one thread at a
// time.
class Cudnn {
 public:
  // What it enqueues goes to this stream; without one, to the legacy stream.
  explicit Cudnn(cudaStream_t stream = nullptr) : stream_(stream) {}

  // Makes the handle, as does the first of the functions below, if there is none.
  void get_ready(const Where& where);

  // The algorithms that cuDNN has for it, first the one that it takes for the fastest; none if it
  // refuses all.
  std::vector<CudnnAlgorithm> ranked(const Convolution& convolution, const Where& where);
  // The same in order of measured time. Allocates and waits.
  std::vector<CudnnAlgorithm> measured(const Convolution& convolution, const Where& where);

  // Whether cuDNN computes it so, which it says only when it does, whatever it has listed: these
  // allocate one image, and wait.
  bool convolves(const Convolution& convolution, const CudnnAlgorithm& algorithm,
                 const Where& where);
  // As kernels count, too, it takes no tensors of 2^31 elements or more.
  bool pools(const Pooling& pooling, const Where& where);

  void convolve(const ConvolutionCall& call, const Where& where);
  void pool(const PoolingCall& call, const Where& where);
  void attend(const AttentionCall& call, const Where& where);
  // The same; false if cuDNN refuses it.
  bool attends(const AttentionCall& call, const Where& where);

 private:
  const ConvolutionDescriptors& described(const Convolution& convolution, const Where& where);
  std::vector<CudnnAlgorithm> algorithms(const Convolution& convolution, bool measured,
                                         const Where& where);
  // Of the algorithm with this number.
  cudnnStatus_t workspace(const Convolution& convolution, int number, std::size_t* bytes,
                          const Where& where);
  cudnnStatus_t enqueue(const ConvolutionCall& call, const Where& where);
  cudnnStatus_t enqueue(const PoolingCall& call, const Where& where);
  cudnnStatus_t enqueue(const AttentionCall& call, const Where& where);

  cudaStream_t stream_;
  CudnnHandle handle_;
  // Made in the first run of each.
  std::map<Convolution, ConvolutionDescriptors> convolutions_;
  std::map<Pooling, PoolingDescriptors> poolings_;
  std::map<std::pair<Attention, int>, CudnnAttention> attentions_;  // by number of the algorithm
};

}  // namespace belfry::cuda
