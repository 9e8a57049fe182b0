// Convolution and average pooling by cuDNN: the only sources that know its functions of these. It
// has NHWC images and OHWI filters, as we do.
#pragma once
#include <map>
#include <vector>

#include "belfry/framework/cuda/calls.h"
#include "belfry/framework/cuda/handles.h"
#include "belfry/framework/cuda/where.h"

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

// A handle of cuDNN on the GPU that is current when it is made. For one thread at a time.
class Cudnn {
 public:
  explicit Cudnn(const Where& where) : handle_(make_cudnn(where.str())) {}
  // What it enqueues goes there from now on.
  void set_stream(cudaStream_t stream, const Where& where);

  // The algorithms that cuDNN has for it, first the one that it takes for the fastest; none if it
  // refuses all.
  std::vector<ConvolutionAlgorithm> ranked(const Convolution& convolution, const Where& where);
  // The same in order of measured time. Allocates and waits.
  std::vector<ConvolutionAlgorithm> measured(const Convolution& convolution, const Where& where);

  // Whether cuDNN computes it, which it says only when it does: this allocates one image, and
  // waits. As kernels count, too, it takes no tensors of 2^31 elements or more.
  bool pools(const Pooling& pooling, const Where& where);

  void convolve(const ConvolutionCall& call, const Where& where);
  void pool(const PoolingCall& call, const Where& where);

 private:
  const ConvolutionDescriptors& described(const Convolution& convolution, const Where& where);
  std::vector<ConvolutionAlgorithm> algorithms(const Convolution& convolution, bool measured,
                                               const Where& where);
  cudnnStatus_t enqueue(const PoolingCall& call, const Where& where);

  CudnnHandle handle_;
  // Made in the first run of each.
  std::map<Convolution, ConvolutionDescriptors> convolutions_;
  std::map<Pooling, PoolingDescriptors> poolings_;
};

}  // namespace belfry::cuda
