#include "belfry/allreduce/gradient_packer.h"

#include <algorithm>

#include "belfry/allreduce/buckets.h"
#include "belfry/allreduce/pieces.h"
#include "belfry/allreduce/verify/verify.h"
#include "belfry/framework/base/require.h"
#include "belfry/framework/base/text.h"
#include "belfry/framework/graph/scopes.h"
#include "belfry/ops/reshape.h"

namespace belfry {
namespace {

constexpr std::int64_t kLeastElementsPerPart = 1024;

}  // namespace

GradientPacker::GradientPacker(int splits) : splits_(splits) {
  require(splits >= 1, "gradients are packed into at least one part, not ", splits);
}

bool GradientPacker::prepare(std::span<const Gradient> grads) {
  require(!prepared_ && reason_.empty(), "a GradientPacker is prepared once; make another one");
  require(!grads.empty(), "there are no gradients to pack");
  for (const Gradient& g : grads) {
    if (!g.value.shape().is_fully_known()) {
      reason_ = cat("the shape of ", g.value.node().describe(), ", ", g.value.shape(),
                    ", is not fully known");
      return false;
    }
    shapes_.push_back(g.value.shape());
    total_ += g.value.shape().elements();
  }
  if (total_ < kLeastElementsPerPart * splits_) {
    reason_ =
        cat("the gradients have ", total_, " elements, but ", splits_, " parts need at least ",
            kLeastElementsPerPart * splits_, " (", kLeastElementsPerPart, " each)");
    return false;
  }
  for (const Gradient& g : grads) {
    if (g.value.dtype() == grads[0].value.dtype()) continue;
    reason_ = cat("dtypes differ: ", grads[0].value.node().describe(), " is ",
                  grads[0].value.type(), ", ", g.value.node().describe(), " is ", g.value.type(),
                  "; the gradients have ", total_, " elements in all");
    return false;
  }
  split_sizes_.assign(static_cast<std::size_t>(splits_), total_ / splits_);
  split_sizes_.back() = total_ - total_ / splits_ * (splits_ - 1);
  prepared_ = true;
  return true;
}

GradientTable GradientPacker::pack(const GradientTable& grads) {
  require(prepared_, "a GradientPacker packs after prepare() has agreed",
          reason_.empty() ? "" : "; it refused: ", reason_);
  NameScope names(grads.graph(), "GradientPacker");
  GradientRows rows;
  for (int t = 0; t < grads.towers(); ++t) {
    DeviceScope on(grads.graph(), grads.device(t));
    std::vector<Output> flat;
    for (const Gradient& g : grads.row(t)) {
      require(flat.size() < shapes_.size() && g.value.shape() == shapes_[flat.size()],
              "pack: gradient ", flat.size(), ", ", g.value.node().describe(), ", has shape ",
              g.value.shape(), ", which was not prepared");
      flat.push_back(flat_row(g.value));
    }
    require(flat.size() == shapes_.size(), "pack: ", flat.size(), " gradients, but ",
            shapes_.size(), " were prepared");
    rows.emplace_back();
    for (const Output& part : cut(join_flat(flat), split_sizes_)) rows.back().push_back({part, {}});
  }
  packed_ = std::make_unique<const GradientTable>(grads);
  return GradientTable(std::move(rows));
}

OutputRows GradientPacker::unpack(const GradientTable& parts) const {
  require(packed_ != nullptr, "a GradientPacker unpacks what it has packed");
  require(parts.towers() == packed_->towers() && parts.variables() == splits_,
          "unpack: ", parts.towers(), " towers with ", parts.variables(), " parts, but ",
          packed_->towers(), " with ", splits_, " were packed");
  NameScope names(parts.graph(), "GradientUnpacker");
  std::vector<std::int64_t> sizes;
  for (const Shape& shape : shapes_) sizes.push_back(shape.elements());
  OutputRows rows;
  for (int t = 0; t < parts.towers(); ++t) {
    DeviceScope on(parts.graph(), packed_->device(t));
    std::vector<Output> pieces;
    for (const Gradient& part : parts.row(t)) pieces.push_back(part.value);
    rows.push_back(cut(join_flat(pieces), sizes));
    for (std::size_t v = 0; v < shapes_.size(); ++v)
      rows.back()[v] = reshape(rows.back()[v], shapes_[v]);
  }
  return rows;
}

OutputRows combine_in_parts(const GradientTable& grads, const Strategy& strategy,
                            Reduction reduction, const Packing& packing) {
  if (packing.parts == 0) return combine_in_buckets(grads, strategy, reduction, packing.bucket_mb);
  GradientPacker packer(packing.parts);
  require(packer.prepare(grads.row(0)), "gradient_repacking=", packing.parts, ": ",
          packer.reason());
  const GradientTable parts = packer.pack(grads);
  const std::size_t first = grads.graph().size();
  return packer.unpack(
      verified(parts, combine_in_buckets(parts, strategy, reduction, packing.bucket_mb), first));
}

}  // namespace belfry
