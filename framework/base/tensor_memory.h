// Where tensors get their memory, if not from host_allocator().
#pragma once
#include <memory>

#include "belfry/framework/base/allocator.h"

namespace belfry {

// While it lives, tensors that this thread makes, or copies to write them, get memory of this
// allocator of the host, and keep it alive. Null: of host_allocator().
class TensorMemory {
 public:
  explicit TensorMemory(std::shared_ptr<Allocator> allocator);
  ~TensorMemory();
  TensorMemory(const TensorMemory&) = delete;
  TensorMemory& operator=(const TensorMemory&) = delete;

 private:
  std::shared_ptr<Allocator> before_;
};

}  // namespace belfry
