#include "belfry/framework/base/tensor.h"

#include "belfry/framework/base/require.h"

namespace belfry {

Tensor::Tensor(Shape shape, DType dtype)
    : shape_(std::move(shape)), dtype_(dtype), elements_(shape_.elements()) {
  require(elements_ >= 0, "a Tensor needs a fully known shape, not ", shape_);
  storage_ = std::make_shared<MemoryBlock>(host_allocator(), bytes());
  std::memset(storage_->data(), 0, bytes());
}

std::byte* Tensor::mutable_raw() {
  if (storage_.use_count() > 1) {
    auto own = std::make_shared<MemoryBlock>(host_allocator(), bytes());
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
