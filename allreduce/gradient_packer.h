// Packs the gradients of a tower into a few large tensors, so that they are combined at once.
#pragma once
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "belfry/allreduce/strategy.h"

namespace belfry {

// For one model: prepare() with tower 0's gradients, then pack, combine, unpack. Variables are laid
// end to end in the order of the table, and that row is cut into parts of nearly equal size,
// whatever the boundaries of variables. No element is summed otherwise than without packing.
class GradientPacker {
 public:
  // Throws InvalidArgument if splits < 1.
  explicit GradientPacker(int splits = 8);

  // Plans the parts: n - 1 of floor(total / n) elements, the rest in the last. Returns false, with
  // a reason(), if a shape is not known, if there are fewer than 1024 elements per part, or if
  // dtypes differ (checked in this order). To be called once.
  bool prepare(std::span<const Gradient> grads);
  // Why prepare() refused, with the number of elements; "" otherwise.
  const std::string& reason() const { return reason_; }

  // The parts of each tower's gradients, built on its device. The table is to have the shapes that
  // were prepared.
  GradientTable pack(const GradientTable& grads);
  // From combined parts back to the variables of the table that was packed last, on each tower's
  // device. Steps are then held to what was combined, as after Strategy::reduce.
  GradientTable unpack(const GradientTable& parts) const;
  // Its values [t][v] alone, for a strategy, whose results are noted as such.
  std::vector<std::vector<Output>> unpacked(const GradientTable& parts) const;

 private:
  int splits_;
  bool prepared_ = false;
  std::string reason_;
  std::int64_t total_ = 0;
  std::vector<Shape> shapes_;
  std::vector<std::int64_t> split_sizes_;
  std::unique_ptr<const GradientTable> packed_;
};

// `inner` applied to gradients in `parts` parts. Throws InvalidArgument with the packer's reason
// when gradients cannot be packed.
std::unique_ptr<Strategy> packed_strategy(std::unique_ptr<Strategy> inner, int parts);

}  // namespace belfry
