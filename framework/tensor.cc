#include "belfry/framework/tensor.h"

#include <cstdio>

namespace belfry {

Tensor::Tensor(Shape shape, DType dtype)
    : shape_(std::move(shape)), dtype_(dtype), elements_(shape_.elements()) {
  require(elements_ >= 0, "a Tensor needs a fully known shape, not ", shape_);
  storage_ = std::make_shared<Buffer>(host_allocator(), bytes());
  std::memset(storage_->data(), 0, bytes());
}

std::byte* Tensor::mutable_raw() {
  if (storage_.use_count() > 1) {
    auto own = std::make_shared<Buffer>(host_allocator(), bytes());
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

namespace {

// numpy prints floats with the fewest digits and a trailing point: 22. and 0.5.
std::string element_text(const Tensor& tensor, std::int64_t i) {
  return visit_any(tensor.dtype(), [&](auto zero) -> std::string {
    using T = decltype(zero);
    const T value = tensor.data<T>()[static_cast<std::size_t>(i)];
    if constexpr (std::is_same_v<T, bool>) {
      return value ? "True" : "False";
    } else if constexpr (std::is_floating_point_v<T>) {
      char digits[32];
      std::snprintf(digits, sizeof digits, "%.6g", static_cast<double>(value));
      std::string text = digits;
      if (text.find_first_of(".en") == std::string::npos) text += '.';
      return text;
    } else {
      return std::to_string(value);
    }
  });
}

void print_axis(std::string& out, const Tensor& tensor, std::size_t axis, std::int64_t offset) {
  constexpr std::int64_t kEdge = 3;  // elements shown at each end of a long axis, as in numpy
  constexpr std::int64_t kLong = 12;
  const Shape& shape = tensor.shape();
  if (axis == shape.rank()) {
    out += element_text(tensor, offset);
    return;
  }
  const std::int64_t size = shape[axis], stride = shape.product(axis + 1, shape.rank());
  const bool inner = axis + 1 == shape.rank();
  // A line ends once for every axis that does.
  const std::string separator =
      inner ? " " : std::string(shape.rank() - axis - 1, '\n') + std::string(axis + 1, ' ');
  out += '[';
  for (std::int64_t i = 0; i < size; ++i) {
    if (i > 0) out += separator;
    if (size > kLong && i == kEdge) {
      out += "..." + separator;
      i = size - kEdge;
    }
    print_axis(out, tensor, axis + 1, offset + i * stride);
  }
  out += ']';
}

}  // namespace

std::string Tensor::str() const {
  std::string out;
  print_axis(out, *this, 0, 0);
  return out;
}

}  // namespace belfry
