// Dimensions of a tensor. The rank is known when a graph is built; a dimension may be kUnknownSize
// until a plan is compiled for real shapes.
#pragma once
#include <array>
#include <cstdint>
#include <initializer_list>
#include <span>
#include <string>
#include <vector>

namespace belfry {

inline constexpr std::int64_t kUnknownSize = -1;

class Shape {
 public:
  Shape() = default;  // a scalar
  Shape(std::initializer_list<std::int64_t> dims) : Shape(std::span(dims.begin(), dims.size())) {}
  explicit Shape(std::span<const std::int64_t> dims);

  std::size_t rank() const { return rank_; }
  std::int64_t operator[](std::size_t axis) const { return all()[axis]; }
  std::int64_t& operator[](std::size_t axis) { return rank_ <= kFew ? few_[axis] : many_[axis]; }
  std::int64_t back() const { return all().back(); }
  std::vector<std::int64_t> dims() const { return {all().begin(), all().end()}; }

  bool is_fully_known() const;

  // Number of elements, kUnknownSize if any dimension is unknown. Throws InvalidArgument above
  // 2^59.
  std::int64_t elements() const;

  // Product of the dimensions [from, to); 1 if empty. All must be known.
  std::int64_t product(std::size_t from, std::size_t to) const;

  // True if some concrete shape fits both: equal ranks, and each pair of dimensions equal or
  // unknown.
  bool compatible(const Shape& other) const;

  bool operator==(const Shape&) const = default;

  // "[64,784]"; unknown dimensions print as "?".
  std::string str() const;

 private:
  std::span<const std::int64_t> all() const {
    return {rank_ <= kFew ? few_.data() : many_.data(), rank_};
  }

  // Graphs and plans hold many shapes. Nearly all have few dimensions, and need no heap memory.
  static constexpr std::size_t kFew = 4;
  std::array<std::int64_t, kFew> few_{};  // unless there are more; 0 after the last one
  std::vector<std::int64_t> many_;        // all, if there are more
  std::size_t rank_ = 0;
};

}  // namespace belfry
