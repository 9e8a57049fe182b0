#include "belfry/framework/base/tensor.h"

#include <utility>

#include "belfry/framework/base/require.h"
#include "belfry/framework/base/tensor_memory.h"

namespace belfry {
namespace {

thread_local std::shared_ptr<Allocator> tensor_allocator;  // null: host_allocator()

std::shared_ptr<MemoryBlock> allocate_tensor(std::size_t bytes) {
  if (!tensor_allocator) return std::make_shared<MemoryBlock>(host_allocator(), bytes);
  return {new MemoryBlock(*tensor_allocator, bytes),
          [owner = tensor_allocator](MemoryBlock* block) { delete block; }};
}

}  // namespace

TensorMemory::TensorMemory(std::shared_ptr<Allocator> allocator)
    : before_(std::exchange(tensor_allocator, std::move(allocator))) {}

TensorMemory::~TensorMemory() { tensor_allocator = std::move(before_); }

Tensor::Tensor(Shape shape, DType dtype)
    : shape_(std::move(shape)), dtype_(dtype), elements_(shape_.elements()) {
  require(elements_ >= 0, "a Tensor needs a fully known shape, not ", shape_);
  storage_ = allocate_tensor(bytes());
  std::memset(storage_->data(), 0, bytes());
}

std::byte* Tensor::mutable_raw() {
  if (storage_.use_count() > 1) {
    auto own = allocate_tensor(bytes());
    std::memcpy(own->data(), storage_->data(), bytes());
    storage_ = std::move(own);
  }
  return storage_->data();
}

bool Tensor::operator==(const Tensor& other) const {
  return dtype_ == other.dtype_ && shape_ == other.shape_ &&
         std::memcmp(raw(), other.raw(), bytes()) == 0;
}

void Tensor::check_type(DType wanted) const {
  require(wanted == dtype_, "a ", name_of(dtype_), " tensor was accessed as ", name_of(wanted));
}

void Tensor::check_count(std::size_t count) const {
  require(static_cast<std::int64_t>(count) == elements_, "shape ", shape_, " has ", elements_,
          " elements, not ", count);
}

}  // namespace belfry
