#include "belfry/trainers/names/renamed_tensors.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "belfry/framework/base/error.h"
#include "belfry/framework/base/option_name.h"
#include "belfry/framework/base/require.h"
#include "belfry/framework/base/text.h"
#include "belfry/trainers/optimizers/variable_groups.h"
#include "belfry/trainers/util/converted_values.h"
#include "belfry/trainers/util/flag_values.h"

namespace belfry {
namespace {

namespace renamed_tensors {

// The part [begin, begin + length) of an axis of a dense tensor.
struct Slab {
  std::size_t outer, stride, begin, length;  // the last three in bytes

  Slab(const TensorType& type, std::size_t axis, std::int64_t at, std::int64_t count) {
    const auto number = [](std::int64_t x) { return static_cast<std::size_t>(x); };
    const std::size_t inner =
        number(type.shape.product(axis + 1, type.shape.rank())) * size_of(type.dtype);
    outer = number(type.shape.product(0, axis));
    stride = number(type.shape[axis]) * inner;
    begin = number(at) * inner;
    length = number(count) * inner;
  }
};

void put(std::vector<std::byte>& whole, const Slab& slab, std::span<const std::byte> part) {
  for (std::size_t i = 0; i < slab.outer && slab.length > 0; ++i)
    std::memcpy(&whole[i * slab.stride + slab.begin], &part[i * slab.length], slab.length);
}

std::vector<std::byte> cut_out(std::span<const std::byte> whole, const Slab& slab) {
  std::vector<std::byte> part(slab.outer * slab.length);
  for (std::size_t i = 0; i < slab.outer && slab.length > 0; ++i)
    std::memcpy(&part[i * slab.length], &whole[i * slab.stride + slab.begin], slab.length);
  return part;
}

Shape with_length(Shape shape, std::size_t axis, std::int64_t length) {
  shape[axis] = length;
  return shape;
}

DType natural_type(DType dtype) { return is_half(dtype) ? DType::kF32 : dtype; }

std::vector<std::string> names_in(const std::map<std::string, TensorType>& types) {
  std::vector<std::string> names;
  for (const auto& [name, type] : types) names.push_back(name);
  return names;
}

}  // namespace renamed_tensors

}  // namespace

RenamedTensors::RenamedTensors(TensorSource source, const NameRules& rules,
                               const RenamingOptions& options)
    : source_(std::move(source)), rules_(rules), options_(options) {
  find_lengths();
  std::map<Key, std::size_t> known;
  for (const auto& [name, type] : source_.types) take(name, known);
  std::erase_if(uses_, [&](const Use& use) { return !is_whole(use); });
  for (std::size_t i = 0; i < uses_.size(); ++i) {
    find_types(uses_[i]);
    add_targets(i);
  }
  if (options_.model) check_model();
}

// Lengths of axes of our weights, as far as these are known.
void RenamedTensors::find_lengths() {
  const std::map<std::string, TensorType>* const ours = to_ours() ? options_.model : &source_.types;
  for (const auto& [name, length] : rules_.lengths) {
    if (const auto* const number = std::get_if<std::int64_t>(&length)) {
      lengths_[name] = *number;
      continue;
    }
    const auto& [weight, axis] = std::get<NameRules::AxisOfOurs>(length);
    if (!ours || !ours->contains(weight)) continue;
    const Shape& shape = ours->at(weight).shape;
    require(axis < shape.rank(), rules_.name, ": let ", name, " = ", weight, "[", axis,
            "]: ", weight, " is ", shape, ", which has no axis ", axis);
    require(shape[axis] > 0, rules_.name, ": let ", name, " = ", weight, "[", axis, "]: ", weight,
            " is ", shape, ", but a length is above 0; correct the rules");
    lengths_[name] = shape[axis];
  }
}

void RenamedTensors::refuse(const std::string& why) {
  if (!options_.partial)
    throw InvalidArgument(about_option("partial", why, ", or leave out what does not fit (",
                                       the_option("partial"), ")"));
  left_out_.push_back(why);
}

std::string RenamedTensors::where(const Use& use) const {
  return cat(source_.place(*std::ranges::find_if(
                 use.sources, [](const std::string& name) { return !name.empty(); })),
             ": by ", rules_.place_of(*use.rule));
}

// Finds the rule of a source.
void RenamedTensors::take(const std::string& name, std::map<Key, std::size_t>& known) {
  std::string why_not;
  for (const NameRule& rule : rules_.rules)
    if (take_by(rule, name, known, why_not)) return;
  const auto fits = [&](const std::string& pattern) { return fits_pattern(name, pattern); };
  if (to_ours() && std::ranges::any_of(rules_.ignored, fits)) return;
  refuse(why_not.empty()
             ? cat(source_.place(name), ": no rule of ", rules_.name, " takes it; add one")
             : why_not);
}

bool RenamedTensors::take_by(const NameRule& rule, const std::string& name,
                             std::map<Key, std::size_t>& known, std::string& why_not) {
  const std::size_t parts = to_ours() ? rule.theirs.size() : rule.ours.size();
  for (std::size_t part = 0; part < parts; ++part) {
    std::optional<NamePattern::Numbers> numbers;
    if (!to_ours()) numbers = rule.ours[part].numbers_in(name);
    for (std::size_t i = 0; to_ours() && !numbers && i < rule.theirs[part].size(); ++i)
      numbers = rule.theirs[part][i].numbers_in(name);
    if (!numbers) continue;
    const Key key{rule.line, *numbers};
    if (!known.contains(key)) {
      Use use = new_use(rule, *numbers);
      const auto* const model = options_.model;
      const auto is_there = [&](const std::string& target) { return model->contains(target); };
      if (to_ours() && model && std::ranges::none_of(use.targets, is_there)) {
        if (why_not.empty())
          why_not = cat(source_.place(name), ": by ", rules_.place_of(rule), " it becomes '",
                        use.targets[0], "', which the model lacks",
                        did_you_mean(use.targets[0], renamed_tensors::names_in(*model)),
                        "; build the model in the size of these weights");
        return false;
      }
      known[key] = uses_.size();
      uses_.push_back(std::move(use));
    }
    std::string& source = uses_[known[key]].sources[part];
    if (source.empty())
      source = name;
    else
      refuse(cat(source_.place(name), ": by ", rules_.place_of(rule), " it is the same as '",
                 shown(source), "', which is there, too; remove one"));
    return true;
  }
  return false;
}

RenamedTensors::Use RenamedTensors::new_use(const NameRule& rule,
                                            const NamePattern::Numbers& numbers) const {
  Use use{.rule = &rule, .numbers = numbers};
  use.sources.resize(to_ours() ? rule.theirs.size() : rule.ours.size());
  if (to_ours())
    for (const NamePattern& name : rule.ours) use.targets.push_back(name.name(numbers));
  else
    for (const auto& spellings : rule.theirs)
      use.targets.push_back(spellings.front().name(numbers));
  return use;
}

bool RenamedTensors::is_whole(const Use& use) {
  for (std::size_t part = 0; part < use.sources.size(); ++part) {
    if (!use.sources[part].empty()) continue;
    const std::string lacks = to_ours() ? use.rule->theirs[part].front().name(use.numbers)
                                        : use.rule->ours[part].name(use.numbers);
    refuse(cat(where(use), " it makes '", use.targets[0], "' together with '", lacks,
               "', which is missing; add that"));
    return false;
  }
  return true;
}

AxisPattern RenamedTensors::axes_of(const NameRule& rule) const {
  return to_ours() ? *rule.axes : rule.axes->back();
}

// All sources must widen to it, unless the rule rounds.
DType RenamedTensors::target_type(const Use& use, const std::string& target) const {
  const std::optional<DType> theirs = use.rule->their_type;
  const DType first = source_.types.at(use.sources[0]).dtype;
  const bool is_known = options_.model && options_.model->contains(target);
  const DType wanted = !to_ours() ? (theirs && is_floating(first) ? *theirs : first)
                       : is_known ? options_.model->at(target).dtype
                                  : renamed_tensors::natural_type(first);
  for (const std::string& source : use.sources) {
    const DType from = source_.types.at(source).dtype;
    const bool are_floating = is_floating(from) && is_floating(wanted);
    require((theirs && are_floating) || widens(from, wanted), source_.place(source), ": by ",
            rules_.place_of(*use.rule), " it becomes '", target, "', but it is ", name_of(from),
            " and that is ", name_of(wanted),
            are_floating ? cat("; let the rule round: as ", name_of(from)) : "");
  }
  return wanted;
}

void RenamedTensors::find_types(Use& use) const try {
  if (use.rule->axes)
    for (const std::string& length : axes_of(*use.rule).unknown_lengths(lengths_))
      require_known(length);
  if (use.sources.size() == 1 && use.targets.size() == 1) {
    const TensorType& from = source_.types.at(use.sources[0]);
    use.types = {{use.rule->axes ? axes_of(*use.rule).arranged(from.shape, lengths_) : from.shape,
                  target_type(use, use.targets[0])}};
    return;
  }
  const AxisPattern axes = axes_of(*use.rule);
  use.types = use.sources.size() > 1 ? joined_type(use, axes) : split_types(use, axes);
} catch (const InvalidArgument& error) {
  const std::string_view what = error.what();
  for (const std::string& source : use.sources)
    if (what.starts_with(source_.place(source))) throw;
  throw InvalidArgument(cat(where(use), ": ", error.what()));
}

bool RenamedTensors::lengths_are_known(const NameRule& rule) const {
  return std::ranges::all_of(rule.sizes, [&](const std::string& size) {
    return !rules_.lengths.contains(size) || lengths_.contains(size);
  });
}

// A rule may take a length from a weight of the model.
void RenamedTensors::require_known(const std::string& length) const {
  require(lengths_.contains(length) || !rules_.lengths.contains(length), "the length ", length,
          " is that of a weight of the model, which is not known here; name a checkpoint of it (",
          the_option("like"), ")");
}

// The lengths of the parts of an axis.
std::vector<std::int64_t> RenamedTensors::part_lengths(const Use& use, std::int64_t whole) const {
  const NameRule& rule = *use.rule;
  const std::size_t parts = std::max(use.sources.size(), use.targets.size());
  std::vector<std::int64_t> lengths;
  std::int64_t left = whole, shares = 0;
  bool fits = true;
  for (std::size_t i = 0; i < parts; ++i) {
    const std::string size = rule.sizes.empty() ? "*" : rule.sizes[i];
    lengths.push_back(0);
    if (size == "*") {
      ++shares;
      continue;
    }
    const auto named = lengths_.find(size);
    require_known(size);
    lengths.back() =
        named != lengths_.end() ? named->second : parse_number<std::int64_t>("the length", size);
    fits = fits && lengths.back() <= left;
    if (fits) left -= lengths.back();
  }
  fits = fits && (shares == 0 ? left == 0 : left % shares == 0);
  require(fits, "an axis of length ", whole, " cannot be parted as along ", rule.along,
          rule.sizes.empty() ? " in equal parts" : cat(" = ", join(rule.sizes, " ")));
  for (std::size_t i = 0; i < parts; ++i)
    if (rule.sizes.empty() || rule.sizes[i] == "*") lengths[i] = left / shares;
  return lengths;
}

std::vector<TensorType> RenamedTensors::joined_type(const Use& use, const AxisPattern& axes) const {
  using renamed_tensors::with_length;
  const std::size_t axis = *axes.place_after(use.rule->along);
  std::vector<Shape> shapes;
  std::int64_t whole = 0;
  for (const std::string& source : use.sources) {
    shapes.push_back(axes.arranged(source_.types.at(source).shape, lengths_));
    whole += shapes.back()[axis];
    require(with_length(shapes.back(), axis, 1) == with_length(shapes[0], axis, 1), "'",
            shown(source), "' and '", shown(use.sources[0]),
            "' do not fit together: ", shapes.back(), " and ", shapes[0], " along axis ", axis);
  }
  if (lengths_are_known(*use.rule)) {
    const std::vector<std::int64_t> wanted = part_lengths(use, whole);
    for (std::size_t i = 0; i < shapes.size(); ++i)
      require(shapes[i][axis] == wanted[i], "'", shown(use.sources[i]), "' has a length of ",
              shapes[i][axis], " along ", use.rule->along, ", not ", wanted[i]);
  }
  return {{with_length(shapes[0], axis, whole), target_type(use, use.targets[0])}};
}

std::vector<TensorType> RenamedTensors::split_types(const Use& use, const AxisPattern& axes) const {
  const TensorType& from = source_.types.at(use.sources[0]);
  const std::size_t axis = *axes.place_before(use.rule->along);
  require(axis < from.shape.rank(), "'", axes.str(), "' does not fit ", from.shape);
  const std::vector<std::int64_t> lengths = part_lengths(use, from.shape[axis]);
  std::vector<TensorType> types;
  for (std::size_t i = 0; i < lengths.size(); ++i)
    types.push_back(
        {axes.arranged(renamed_tensors::with_length(from.shape, axis, lengths[i]), lengths_),
         target_type(use, use.targets[i])});
  return types;
}

void RenamedTensors::add_targets(std::size_t index) {
  const Use& use = uses_[index];
  for (std::size_t part = 0; part < use.targets.size(); ++part) {
    const Target target{use.types[part], use.rule->trained, index, part};
    const auto [other, is_new] = targets_.emplace(use.targets[part], target);
    if (is_new || gives_the_same(use.targets[part], target)) continue;
    refuse(cat(where(use), " it becomes '", use.targets[part], "', as does '",
               shown(uses_[other->second.use].sources[0]),
               "', and they differ; correct the rules"));
  }
}

bool RenamedTensors::gives_the_same(const std::string& name, const Target& other) const {
  const Target& first = targets_.at(name);
  return first.type == other.type && value_of(first) == value_of(other);
}

void RenamedTensors::check_model() {
  for (const auto& [name, target] : targets_)
    if (!options_.model->contains(name))
      refuse(cat(where(uses_[target.use]), " it becomes '", name, "', too, which the model lacks; ",
                 "build the model in the size of these weights"));
  for (const auto& [name, type] : *options_.model) {
    const auto found = targets_.find(name);
    if (found == targets_.end()) {
      require(options_.partial, "no tensor becomes '", name, "', which the model has: rules of ",
              rules_.name,
              "; build the model in the size of these weights, or let what is missing "
              "start anew (",
              the_option("partial"), ")");
      missing_.push_back(name);
      continue;
    }
    const TensorType there = found->second.type;
    if (there == type) continue;
    const std::string what = cat(where(uses_[found->second.use]), " it becomes '", name, "' ",
                                 there, ", but the model has ", type);
    require(options_.partial, what,
            "; build the model in the size of these weights, or let it start anew (",
            the_option("partial"), ")");
    unlike_.push_back(cat(name, " (", there, " there, ", type, " here)"));
  }
  std::erase_if(targets_, [&](const auto& target) {
    const auto wanted = options_.model->find(target.first);
    return wanted == options_.model->end() || wanted->second != target.second.type;
  });
}

std::vector<std::byte> RenamedTensors::value(const std::string& name) const {
  return value_of(targets_.at(name));
}

std::vector<std::byte> RenamedTensors::value_of(const Target& target) const {
  const Use& use = uses_[target.use];
  const DType type = target.type.dtype;
  if (use.sources.size() > 1) return joined(use, type);
  if (use.targets.size() > 1) return split_off(use, target.part, type);
  std::vector<std::byte> values = read(use.sources[0], type);
  if (!use.rule->axes) return values;
  return axes_of(*use.rule).arranged(values, source_.types.at(use.sources[0]).shape, size_of(type),
                                     lengths_);
}

std::vector<std::byte> RenamedTensors::joined(const Use& use, DType type) const {
  const AxisPattern axes = axes_of(*use.rule);
  const std::size_t axis = *axes.place_after(use.rule->along);
  const TensorType whole{use.types[0].shape, type};
  std::vector<std::byte> result(static_cast<std::size_t>(whole.bytes()));
  std::int64_t at = 0;
  for (const std::string& source : use.sources) {
    const Shape& shape = source_.types.at(source).shape;
    const std::int64_t length = axes.arranged(shape, lengths_)[axis];
    renamed_tensors::put(result, {whole, axis, at, length},
                         axes.arranged(read(source, type), shape, size_of(type), lengths_));
    at += length;
  }
  return result;
}

std::vector<std::byte> RenamedTensors::split_off(const Use& use, std::size_t part,
                                                 DType type) const {
  const AxisPattern axes = axes_of(*use.rule);
  const std::size_t axis = *axes.place_before(use.rule->along);
  const TensorType whole{source_.types.at(use.sources[0]).shape, type};
  const std::vector<std::int64_t> lengths = part_lengths(use, whole.shape[axis]);
  std::int64_t at = 0;
  for (std::size_t i = 0; i < part; ++i) at += lengths[i];
  const std::vector<std::byte> values =
      renamed_tensors::cut_out(read(use.sources[0], type), {whole, axis, at, lengths[part]});
  return axes.arranged(values, renamed_tensors::with_length(whole.shape, axis, lengths[part]),
                       size_of(type), lengths_);
}

std::vector<std::byte> RenamedTensors::read(const std::string& source, DType type) const {
  return converted(source_.read(source), source_.types.at(source).dtype, type);
}

}  // namespace belfry
