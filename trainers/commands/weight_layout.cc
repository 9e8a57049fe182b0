#include "belfry/trainers/commands/weight_layout.h"

#include <array>

#include "belfry/framework/base/error.h"
#include "belfry/framework/base/find_word.h"
#include "belfry/framework/base/require.h"
#include "belfry/framework/base/text.h"

namespace belfry {
namespace {

constexpr std::array<std::string_view, 2> kNames = {"belfry", "torch"};
constexpr std::string_view kWeight = "W";

bool is_weight(const std::string& name, const Manifest::Entry& entry) {
  const std::string_view last = std::string_view(name).substr(name.rfind('/') + 1);
  return last == kWeight && entry.role == VariableRole::kWeight;
}

// Whether the tensor is a weight, or a slot of one.
bool is_of_weight(const Manifest& manifest, const std::string& name, const Manifest::Entry& entry) {
  if (is_weight(name, entry)) return true;
  for (std::size_t slash = name.find('/'); slash != name.npos; slash = name.find('/', slash + 1)) {
    const auto owner = manifest.tensors.find(name.substr(0, slash));
    if (owner != manifest.tensors.end() && is_weight(owner->first, owner->second))
      return owner->second.shape == entry.shape;
  }
  return false;
}

}  // namespace

std::string_view name_of(WeightLayout layout) { return kNames[static_cast<std::size_t>(layout)]; }

WeightLayout find_weight_layout(std::string_view name) {
  return find_word<WeightLayout>(kNames, name, "layout");
}

AxisOrder axis_order(const Manifest& manifest, const std::string& name, WeightLayout layout) {
  const Manifest::Entry& entry = manifest.tensors.at(name);
  const std::size_t rank = entry.shape.rank();
  if (layout == WeightLayout::kBelfry || rank < 2 || rank > 4) return {};
  if (!is_of_weight(manifest, name, entry)) return {};
  if (rank == 2) return {1, 0};
  return rank == 3 ? AxisOrder{0, 2, 1} : AxisOrder{0, 3, 1, 2};
}

}  // namespace belfry
