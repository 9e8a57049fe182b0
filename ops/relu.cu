#include "belfry/ops/relu.h"

#include "belfry/framework/cuda/pointwise.h"
#include "belfry/ops/kernels/functors.h"

namespace belfry::cuda {

const GpuKernel relu(kRelu, unary<functors::Relu>);
const GpuKernel relu_grad(kReluGrad, binary<functors::ReluGrad>);

}  // namespace belfry::cuda
