// A value outside the graph: a feed, a fetch, a constant, or a variable that is read or written.
#pragma once
#include <cstring>
#include <memory>
#include <span>
#include <vector>

#include "belfry/framework/base/allocator.h"
#include "belfry/framework/base/dtype.h"
#include "belfry/framework/base/shape.h"

namespace belfry {

// Dense, row-major, in host memory. Copies share storage until one of them is written.
class Tensor {
 public:
  Tensor() : Tensor(Shape{0}, DType::kF32) {}
  // Zeros.
  Tensor(Shape shape, DType dtype);
  // Throws InvalidArgument unless there is one value per element.
  template <class T>
  Tensor(Shape shape, const std::vector<T>& values) : Tensor(std::move(shape), dtype_of<T>()) {
    check_count(values.size());
    T* out = mutable_data<T>().data();
    for (std::size_t i = 0; i < values.size(); ++i) out[i] = values[i];
  }
  // A scalar.
  template <class T>
  requires requires { dtype_of<T>(); }
  explicit Tensor(T value) : Tensor(Shape{}, std::vector<T>{value}) {}

  const Shape& shape() const { return shape_; }
  DType dtype() const { return dtype_; }
  std::int64_t elements() const { return elements_; }
  std::size_t bytes() const { return static_cast<std::size_t>(elements_) * size_of(dtype_); }

  // Throws InvalidArgument if T is not the element type.
  template <class T>
  std::span<const T> data() const {
    check_type(dtype_of<T>());
    return {reinterpret_cast<const T*>(raw()), static_cast<std::size_t>(elements_)};
  }
  template <class T>
  std::span<T> mutable_data() {
    check_type(dtype_of<T>());
    return {reinterpret_cast<T*>(mutable_raw()), static_cast<std::size_t>(elements_)};
  }
  const std::byte* raw() const { return storage_->data(); }
  std::byte* mutable_raw();

  // The only element. Throws InvalidArgument if there are more or fewer.
  template <class T>
  T item() const {
    check_count(1);
    return data<T>()[0];
  }

  // Equal dtype, shape and bytes.
  bool operator==(const Tensor& other) const;

  // numpy's notation, e.g. "[[22. 28.]\n [49. 64.]]"; long axes are elided in the middle.
  std::string str() const;

 private:
  void check_type(DType wanted) const;
  void check_count(std::size_t count) const;

  Shape shape_;
  DType dtype_;
  std::int64_t elements_;
  std::shared_ptr<MemoryBlock> storage_;
};

}  // namespace belfry
