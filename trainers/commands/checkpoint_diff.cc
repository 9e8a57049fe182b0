#include "belfry/trainers/commands/checkpoint_diff.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "belfry/framework/base/text.h"
#include "belfry/framework/kernels/half.h"
#include "belfry/trainers/util/statistics.h"

namespace belfry {
namespace {

using Values = CheckpointDifference::Values;

// Compares one pair of elements after another.
class Comparison {
 public:
  explicit Comparison(Values& out) : out_(out) {}

  // `same`: a and b have the same bits.
  template <class T>
  void add(T a, T b, bool same) {
    const auto x = static_cast<double>(a), y = static_cast<double>(b);
    for (const double value : {x, y})
      if (std::isfinite(value)) most_ = std::max(most_, std::abs(value));
    if (!same && out_.differing++ == 0) out_.first = out_.elements;
    ++out_.elements;
    if (same) return;
    if (std::isfinite(x) && std::isfinite(y))
      out_.largest = std::max(out_.largest, distance(a, b));
    else
      ++out_.incomparable;
  }
  void finish() { out_.relative = most_ > 0 ? out_.largest / most_ : 0; }

 private:
  template <class T>
  static double distance(T a, T b) {
    if constexpr (std::is_integral_v<T>) {
      // Not all 64-bit integers are doubles, and their difference may overflow.
      const auto x = static_cast<std::uint64_t>(a), y = static_cast<std::uint64_t>(b);
      return static_cast<double>(a < b ? y - x : x - y);
    } else {
      return std::abs(static_cast<double>(a) - static_cast<double>(b));
    }
  }

  Values& out_;
  double most_ = 0;
};

template <class T>
T element(std::span<const std::byte> bytes, std::size_t i) {
  T value;
  std::memcpy(&value, bytes.data() + i * sizeof(T), sizeof(T));
  return value;
}

template <class T>
void compare_as(std::span<const std::byte> a, std::span<const std::byte> b, Comparison& into) {
  for (std::size_t i = 0; i < a.size() / sizeof(T); ++i)
    into.add(element<T>(a, i), element<T>(b, i),
             std::memcmp(a.data() + i * sizeof(T), b.data() + i * sizeof(T), sizeof(T)) == 0);
}

void compare_halves(DType dtype, std::span<const std::byte> a, std::span<const std::byte> b,
                    Comparison& into) {
  const auto widen = kernels::half_conversion(dtype, kernels::HalfPath::kScalar).widen;
  for (std::size_t i = 0; i < a.size() / sizeof(std::uint16_t); ++i) {
    const auto x = element<std::uint16_t>(a, i), y = element<std::uint16_t>(b, i);
    float wide[2] = {};
    widen(&x, &wide[0], 1);
    widen(&y, &wide[1], 1);
    into.add(wide[0], wide[1], x == y);
  }
}

Values compare_values(const std::string& name, DType dtype, std::span<const std::byte> a,
                      std::span<const std::byte> b) {
  Values values{.name = name};
  Comparison comparison(values);
  if (is_half(dtype))
    compare_halves(dtype, a, b, comparison);
  else
    visit_any(dtype, [&](auto zero) { compare_as<decltype(zero)>(a, b, comparison); });
  comparison.finish();
  return values;
}

JsonValue to_json(const Values& values) {
  return JsonValue::object()
      .set("name", values.name)
      .set("elements", values.elements)
      .set("differing", values.differing)
      .set("first", values.first)
      .set("incomparable", values.incomparable)
      .set("largest", values.largest)
      .set("relative", values.relative);
}

std::string only_text(const std::vector<std::string>& names, const std::string& path) {
  std::string text;
  for (const std::string& name : names) text += cat("only in ", path, ": ", shown(name), "\n");
  return text;
}

}  // namespace

std::string CheckpointDifference::Values::str() const {
  std::string text =
      cat(shown(name), ": ", differing, " of ", elements,
          elements == 1 ? " element differs" : " elements differ", ", the first at ", first);
  if (differing > incomparable)
    text += cat(", by at most ", significant(largest), " (", significant(relative),
                " of the largest value)");
  if (incomparable > 0) text += cat("; ", incomparable, " of them are not finite");
  return text;
}

bool CheckpointDifference::none() const {
  return only_a.empty() && only_b.empty() && types.empty() && values.empty();
}

std::string CheckpointDifference::text() const {
  std::string text = only_text(only_a, path_a) + only_text(only_b, path_b);
  for (const Type& type : types)
    text += cat(shown(type.name), ": ", type.a, " in ", path_a, ", ", type.b, " in ", path_b, "\n");
  for (const Values& tensor : values) text += tensor.str() + "\n";
  const std::size_t other = only_a.size() + only_b.size() + types.size() + values.size();
  return cat(text, equal, equal == 1 ? " tensor is" : " tensors are", " equal, ",
             other == 0 ? "none differs" : cat(other, other == 1 ? " differs" : " differ"), "\n");
}

JsonValue CheckpointDifference::json() const {
  JsonValue type_list = JsonValue::array(), value_list = JsonValue::array();
  for (const Type& type : types)
    type_list.push(
        JsonValue::object().set("name", type.name).set("a", type.a.str()).set("b", type.b.str()));
  for (const Values& tensor : values) value_list.push(to_json(tensor));
  return JsonValue::object()
      .set("a", path_a)
      .set("b", path_b)
      .set("equal", none())
      .set("equal_tensors", equal)
      .set("only_a", JsonValue::array(only_a))
      .set("only_b", JsonValue::array(only_b))
      .set("types", std::move(type_list))
      .set("values", std::move(value_list));
}

CheckpointDifference compare_checkpoints(const StoredCheckpoint& a, const StoredCheckpoint& b) {
  CheckpointDifference difference{.path_a = a.head.directory, .path_b = b.head.directory};
  const auto &ours = a.head.manifest.tensors, &theirs = b.head.manifest.tensors;
  for (const auto& [name, entry] : ours) {
    const auto other = theirs.find(name);
    if (other == theirs.end()) {
      difference.only_a.push_back(name);
      continue;
    }
    const TensorType here{entry.shape, entry.dtype};
    const TensorType there{other->second.shape, other->second.dtype};
    if (here != there)
      difference.types.push_back({name, here, there});
    else if (std::ranges::equal(a.values(name), b.values(name)))
      ++difference.equal;
    else
      difference.values.push_back(
          compare_values(name, entry.dtype, a.values(name), b.values(name)));
  }
  for (const auto& [name, entry] : theirs)
    if (!ours.contains(name)) difference.only_b.push_back(name);
  return difference;
}

}  // namespace belfry
