#include "belfry/framework/graph/stored_options.h"

#include <map>

namespace belfry {
namespace {

// By the addresses of ops, which may not be constructed yet.
std::map<const Op*, OptionsForm>& forms() {
  static std::map<const Op*, OptionsForm> instance;
  return instance;
}

}  // namespace

const OptionsForm* options_form(const Op& op) {
  const auto found = forms().find(&op);
  return found == forms().end() ? nullptr : &found->second;
}

namespace detail {

void add_options_form(const Op& op, const OptionsForm& form) { forms().emplace(&op, form); }

JsonValue stored_number(double value) {
  if (std::isfinite(value)) return value;
  return std::isnan(value) ? "nan" : value > 0 ? "inf" : "-inf";
}

double number_in(const JsonValue& value) {
  if (value.kind() != JsonValue::Kind::kString) return value.number();
  constexpr double kInfinity = std::numeric_limits<double>::infinity();
  const std::string& text = value.text();
  require(text == "inf" || text == "-inf" || text == "nan", value.where(), "is no number");
  if (text == "nan") return std::numeric_limits<double>::quiet_NaN();
  return text == "inf" ? kInfinity : -kInfinity;
}

JsonValue stored_shape(const Shape& shape) { return JsonValue::array(shape.dims()); }

Shape shape_in(const JsonValue& value) {
  constexpr std::size_t kMostDims = 64;
  std::vector<std::int64_t> dims;
  read_stored(value, dims);
  require(dims.size() <= kMostDims, value.where(), "is no shape");
  for (const std::int64_t dim : dims)
    require(dim >= kUnknownSize, value.where(), dim, " is no size of a dimension");
  Shape shape(dims);
  shape.elements();  // throws for too many
  return shape;
}

}  // namespace detail
}  // namespace belfry
