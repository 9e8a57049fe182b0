// Dimensions of a tensor. The rank is known when a graph is built; a dimension may be kUnknown
// until a plan is compiled for real shapes.
#pragma once
#include <cstdint>
#include <initializer_list>
#include <string>
#include <vector>

namespace belfry {

inline constexpr std::int64_t kUnknown = -1;

class Shape {
 public:
  Shape() = default;  // a scalar
  Shape(std::initializer_list<std::int64_t> dims) : dims_(dims) {}
  explicit Shape(std::vector<std::int64_t> dims) : dims_(std::move(dims)) {}

  std::size_t rank() const { return dims_.size(); }
  std::int64_t operator[](std::size_t axis) const { return dims_[axis]; }
  std::int64_t& operator[](std::size_t axis) { return dims_[axis]; }
  std::int64_t back() const { return dims_.back(); }
  const std::vector<std::int64_t>& dims() const { return dims_; }

  bool is_fully_known() const;

  // Number of elements, kUnknown if any dimension is. Throws InvalidArgument above 2^59.
  std::int64_t elements() const;

  // Product of the dimensions [from, to); 1 if empty. All must be known.
  std::int64_t product(std::size_t from, std::size_t to) const;

  // True if some real shape fits both: equal ranks, and each pair of dimensions equal or unknown.
  bool compatible(const Shape& other) const;

  bool operator==(const Shape&) const = default;

  // "[64,784]"; unknown dimensions print as "?".
  std::string str() const;

 private:
  std::vector<std::int64_t> dims_;
};

}  // namespace belfry
