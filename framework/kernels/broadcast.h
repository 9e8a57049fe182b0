// How the operands of a binary pointwise op line up with its output.
#pragma once
#include <cstdint>
#include <span>
#include <vector>

namespace belfry::kernels {

// The output seen as rows of `inner` elements, along which each operand either advances or stays in
// place. Neighbouring dimensions that both operands treat the same are one, so equal shapes and
// scalars give a single row. Made when a kernel is prepared; using it allocates nothing.
class Broadcast {
 public:
  // Dimensions line up at the end; where they differ, one is 1 (or missing) and is repeated. The
  // op's shape function has checked that.
  Broadcast(std::span<const std::int64_t> a, std::span<const std::int64_t> b);

  // kRowRight: the output is a matrix of `inner` columns, a has its shape and b is one row of it,
  // as a bias is. kRowLeft: the reverse.
  enum class Kind { kRows, kRowRight, kRowLeft };

  struct Offsets {
    std::int64_t a;
    std::int64_t b;
  };
  // Where output row `row` begins in each operand.
  Offsets offsets(std::int64_t row) const;

  Kind kind = Kind::kRows;
  std::int64_t inner = 1;
  bool a_runs = true;
  bool b_runs = true;

  struct Dimension {
    std::int64_t size;
    std::int64_t a_stride;  // 0 where the operand is repeated
    std::int64_t b_stride;
  };
  // Dimensions of the rows, from the innermost out.
  std::span<const Dimension> outer() const { return outer_; }

 private:
  std::vector<Dimension> outer_;
};

}  // namespace belfry::kernels
