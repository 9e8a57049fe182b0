#include "belfry/framework/cuda/stream_queue.h"

#include <limits>

namespace belfry::cuda {

StreamQueue::StreamQueue(std::string device)
    : where_{.device = std::move(device)},
      stream_(make_stream(where_.str())),
      blas_(where_),
      dnn_(where_) {
  dnn_.set_stream(stream(), where_);
}

void check_grid(Grid grid, const Where& where) {
  require<DeviceError>(grid.blocks <= std::numeric_limits<std::int32_t>::max(), "a kernel of ",
                       grid.blocks, " blocks is more than CUDA launches, ", where);
}

void StreamQueue::launch(const KernelLaunch& launch) {
  check_grid(launch.grid, where_);
  void* parameters[] = {const_cast<void*>(launch.kernel)};
  BELFRY_GPU_CALL(
      cudaLaunchKernel(launch.function, dim3(static_cast<unsigned>(launch.grid.blocks)),
                       dim3(static_cast<unsigned>(launch.grid.threads)), parameters, 0, stream()),
      where_);
}

}  // namespace belfry::cuda
