#include "belfry/ops/precision.h"

#include <algorithm>
#include <array>

#include "belfry/framework/base/text.h"
#include "belfry/ops/cast.h"

namespace belfry {
namespace {

constexpr std::array<std::string_view, 4> kPrecisions = {"f32", "tf32", "bf16", "f16"};

}  // namespace

std::vector<std::string> precision_names() { return {kPrecisions.begin(), kPrecisions.end()}; }

std::string_view name_of(Precision precision) {
  return kPrecisions[static_cast<std::size_t>(precision)];
}

Precision find_precision(std::string_view name) {
  const auto found = std::ranges::find(kPrecisions, name);
  if (found != kPrecisions.end()) return static_cast<Precision>(found - kPrecisions.begin());
  const std::vector<std::string> names = precision_names();
  throw InvalidArgument(cat("unknown precision '", name, "'", did_you_mean(name, names),
                            " (precisions: ", join(names), ")"));
}

Autocasting autocasting(Precision precision) {
  switch (precision) {
    case Precision::kF32: return {};
    case Precision::kTf32: return {.tf32 = true};
    case Precision::kBf16: return {.compute = DType::kBF16, .cast = cast};
    case Precision::kF16: return {.compute = DType::kF16, .cast = cast};
  }
  return {};
}

}  // namespace belfry
