#include "belfry/trainers/names/axis_pattern.h"

#include <algorithm>
#include <utility>

#include "belfry/framework/base/error.h"
#include "belfry/framework/base/require.h"
#include "belfry/framework/base/text.h"
#include "belfry/trainers/util/axis_order.h"

namespace belfry {
namespace {

namespace axis_pattern {

bool is_axis_name(std::string_view word) {
  const auto letter = [](char c) { return (c >= 'a' && c <= 'z') || c == '_'; };
  const auto digit = [](char c) { return c >= '0' && c <= '9'; };
  return !word.empty() && letter(word[0]) &&
         std::ranges::all_of(word, [&](char c) { return letter(c) || digit(c); });
}

std::vector<std::string> flat(const std::vector<std::vector<std::string>>& side) {
  std::vector<std::string> names;
  for (const auto& axis : side) names.insert(names.end(), axis.begin(), axis.end());
  return names;
}

std::string text_of_side(const std::vector<std::vector<std::string>>& side) {
  std::vector<std::string> words;
  for (const auto& axis : side)
    words.push_back(axis.empty()       ? "1"
                    : axis.size() == 1 ? axis[0]
                                       : cat("(", join(axis, " "), ")"));
  return join(words, " ");
}

std::optional<std::size_t> place_in(const std::vector<std::vector<std::string>>& side,
                                    std::string_view name) {
  for (std::size_t i = 0; i < side.size(); ++i)
    if (side[i].size() == 1 && side[i][0] == name) return i;
  return {};
}

Shape shape_of(const std::vector<std::vector<std::string>>& side, const AxisLengths& lengths) {
  std::vector<std::int64_t> dims;
  for (const auto& axis : side) {
    dims.push_back(1);
    for (const std::string& name : axis) dims.back() *= lengths.at(name);
  }
  return Shape(dims);
}

}  // namespace axis_pattern

}  // namespace

AxisPattern::Side AxisPattern::parse_side(std::string_view text) {
  Side side;
  bool inside = false;
  std::string spaced;
  for (const char c : text) spaced += c == '(' || c == ')' ? cat(" ", c, " ") : std::string(1, c);
  for (const std::string_view word : split(spaced, ' ')) {
    if (word.empty()) continue;
    if (word == "(" || word == ")") {
      require((word == ")") == inside, "'", shown(text), "': parentheses do not match");
      inside = !inside;
      if (inside) side.emplace_back();
      continue;
    }
    const bool is_one = word == "1" && !inside;
    require(is_one || axis_pattern::is_axis_name(word), "'", shown(word),
            "' is no name of an axis: use lower-case letters, digits and '_'; 1 for one that comes "
            "or goes");
    if (!inside) side.emplace_back();
    if (!is_one) side.back().emplace_back(word);
  }
  require(!inside, "'", shown(text), "': parentheses do not match");
  return side;
}

AxisPattern::AxisPattern(std::string_view theirs, std::string_view ours)
    : before_(parse_side(theirs)), after_(parse_side(ours)) {
  std::vector<std::string> before = axis_pattern::flat(before_), after = axis_pattern::flat(after_);
  std::ranges::sort(before);
  std::ranges::sort(after);
  for (const std::vector<std::string>* names : {&before, &after}) {
    const auto twice = std::ranges::adjacent_find(*names);
    require(twice == names->end(), "'", str(), "': the axis ", twice == names->end() ? "" : *twice,
            " is twice on one side");
  }
  require(before == after, "'", str(), "': both sides must have the same axes");
}

AxisPattern AxisPattern::back() const {
  AxisPattern turned;
  turned.before_ = after_;
  turned.after_ = before_;
  return turned;
}

AxisLengths AxisPattern::lengths_of(const Shape& shape, const AxisLengths& given) const {
  require(shape.rank() == before_.size(), "'", axis_pattern::text_of_side(before_), "' has ",
          before_.size(), " axes, but the tensor is ", shape);
  AxisLengths lengths;
  for (std::size_t i = 0; i < before_.size(); ++i) {
    std::int64_t known = 1;
    std::string open;
    for (const std::string& name : before_[i]) {
      const auto found = given.find(name);
      if (found != given.end()) {
        lengths[name] = found->second;
        require(found->second <= std::max<std::int64_t>(shape[i], 1) / known, "'", str(),
                "': axis ", i, " of ", shape, " is too short for ", join(before_[i], " "));
        known *= found->second;
        continue;
      }
      require(open.empty(), "'", str(), "': the lengths of ", open, " and ", name,
              " are unknown; say one: let ", name, " = ...");
      open = name;
    }
    const bool fits = open.empty() ? known == shape[i] : shape[i] % known == 0;
    require(fits, "'", str(), "': axis ", i, " of ", shape, " has a length of ", shape[i], ", not ",
            open.empty() ? "" : "a multiple of ", known);
    if (!open.empty()) lengths[open] = shape[i] / known;
  }
  return lengths;
}

Shape AxisPattern::arranged(const Shape& shape, const AxisLengths& given) const {
  return axis_pattern::shape_of(after_, lengths_of(shape, given));
}

std::vector<std::byte> AxisPattern::arranged(std::span<const std::byte> values, const Shape& shape,
                                             std::size_t element_size,
                                             const AxisLengths& given) const {
  const AxisLengths lengths = lengths_of(shape, given);
  const std::vector<std::string> from = axis_pattern::flat(before_),
                                 to = axis_pattern::flat(after_);
  std::vector<std::int64_t> dims;
  for (const std::string& name : from) dims.push_back(lengths.at(name));
  AxisOrder order;
  for (const std::string& name : to)
    order.push_back(static_cast<std::size_t>(std::ranges::find(from, name) - from.begin()));
  return permuted(values, Shape(dims), element_size, order);
}

std::optional<std::size_t> AxisPattern::place_before(std::string_view axis) const {
  return axis_pattern::place_in(before_, axis);
}

std::optional<std::size_t> AxisPattern::place_after(std::string_view axis) const {
  return axis_pattern::place_in(after_, axis);
}

std::vector<std::string> AxisPattern::unknown_lengths(const AxisLengths& given) const {
  std::vector<std::string> unknown;
  for (const Axis& axis : before_) {
    std::vector<std::string> open;
    for (const std::string& name : axis)
      if (!given.contains(name)) open.push_back(name);
    if (open.size() > 1) unknown.insert(unknown.end(), open.begin(), open.end());
  }
  return unknown;
}

std::string AxisPattern::str() const {
  return cat(axis_pattern::text_of_side(before_), " -> ", axis_pattern::text_of_side(after_));
}

}  // namespace belfry
