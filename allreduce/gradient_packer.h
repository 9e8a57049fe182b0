// Packs the gradients of a tower into a few large tensors, so that they are combined at once.
#pragma once
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "belfry/allreduce/strategy.h"

namespace belfry {

// Serves one model: call prepare() with tower 0's gradients, then pack, combine, unpack. Variables
// are laid end to end in table order. This row is cut into parts of nearly equal size, regardless
// of the boundaries of variables. Each element is summed exactly as without packing.
class GradientPacker {
 public:
  // Throws InvalidArgument if splits < 1.
  explicit GradientPacker(int splits = 8);

  // Plans the parts: n - 1 of floor(total / n) elements, and one with the rest. Returns false and
  // sets reason() if a shape is unknown, a part would have fewer than 1024 elements, or dtypes
  // differ (checked in this order). Call it once.
  bool prepare(std::span<const Gradient> grads);
  // Why prepare() refused, with the number of elements; "" otherwise.
  const std::string& reason() const { return reason_; }

  // The parts of each tower's gradients, built on its device. The table must have the shapes given
  // to prepare().
  GradientTable pack(const GradientTable& grads);
  // The values [t][v] of combined parts, in the layout of the table packed last, on each tower's
  // device.
  OutputRows unpack(const GradientTable& parts) const;

 private:
  int splits_;
  bool prepared_ = false;
  std::string reason_;
  std::int64_t total_ = 0;
  std::vector<Shape> shapes_;
  std::vector<std::int64_t> split_sizes_;
  std::unique_ptr<const GradientTable> packed_;
};

// Packs gradients into packing.parts parts (0: leaves them as they are), and returns the results of
// a strategy for these, combined in buckets. Throws InvalidArgument with the packer's reason if
// gradients cannot be packed.
OutputRows combine_in_parts(const GradientTable& grads, const Strategy& strategy,
                            Reduction reduction, const Packing& packing);

}  // namespace belfry
