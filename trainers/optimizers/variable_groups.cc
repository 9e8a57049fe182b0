#include "belfry/trainers/optimizers/variable_groups.h"

#include <algorithm>
#include <cmath>

#include "belfry/framework/base/require.h"
#include "belfry/framework/base/text.h"
#include "belfry/trainers/util/flag_values.h"

namespace belfry {
namespace {

namespace variable_groups {

constexpr std::size_t kAnyRank = std::numeric_limits<std::size_t>::max();

// Whether all of `text` is `pattern`, in which a star stands for any characters.
bool is_like(std::string_view text, std::string_view pattern) {
  std::size_t t = 0, p = 0, star = pattern.npos, after_star = 0;
  while (t < text.size()) {
    if (p < pattern.size() && pattern[p] == '*') {
      star = p++;
      after_star = t;
    } else if (p < pattern.size() && pattern[p] == text[t]) {
      ++p;
      ++t;
    } else if (star != pattern.npos) {  // the last star takes one more character
      p = star + 1;
      t = ++after_star;
    } else {
      return false;
    }
  }
  return pattern.find_first_not_of('*', p) == pattern.npos;
}

void read_setting(std::string_view setting, VariableGroup& group) {
  const std::size_t equals = std::min(setting.find('='), setting.size());
  const std::string_view key = setting.substr(0, equals);
  const std::string_view value = setting.substr(std::min(equals + 1, setting.size()));
  const auto number = [&] { return parse_number<double>(cat("'", shown(setting), "'"), value); };
  if (setting == "freeze")
    group.freeze = true;
  else if (key == "rate")
    group.rate = number();
  else if (key == "weight_decay")
    group.weight_decay = number();
  else if (key == "most_rank")
    group.most_rank = parse_number<std::uint32_t>(cat("'", shown(setting), "'"), value);
  else
    throw InvalidArgument(cat("'", shown(setting), "' is no setting of a group; they are ",
                              "rate=X, weight_decay=X, most_rank=N and freeze"));
}

VariableGroup parse_group(std::string_view text) {
  // Names have no colon.
  const std::size_t colon = text.find(':');
  require(colon != text.npos && colon > 0 && colon + 1 < text.size(), "'", shown(text),
          "' is no group; write PATTERN:SETTING,..., e.g. head*:rate=10 or conv*:freeze");
  VariableGroup group{.pattern = std::string(text.substr(0, colon))};
  std::vector<std::string_view> keys;
  for (const std::string_view setting : split(text.substr(colon + 1), ',')) {
    read_setting(setting, group);
    keys.push_back(setting.substr(0, setting.find('=')));
    require(std::ranges::count(keys, keys.back()) == 1, "'", shown(text), "' sets ", keys.back(),
            " twice; leave one of them out");
  }
  return group;
}

bool is_number(double x) { return x >= 0 && std::isfinite(x); }

}  // namespace variable_groups

}  // namespace

bool fits_pattern(std::string_view name, const std::string& pattern) {
  return variable_groups::is_like(name, pattern) || variable_groups::is_like(name, pattern + "/*");
}

std::string names_near(std::string pattern, const std::vector<std::string>& names) {
  std::erase(pattern, '*');
  return join(nearest_several(pattern, names, 5));
}

bool VariableGroup::fits(std::string_view logical_name, const Shape& shape) const {
  return shape.rank() <= most_rank && fits_pattern(logical_name, pattern);
}

std::string VariableGroup::str() const {
  std::vector<std::string> settings;
  if (most_rank != variable_groups::kAnyRank) settings.push_back(cat("most_rank=", most_rank));
  if (rate != 1) settings.push_back(cat("rate=", rate));
  if (weight_decay) settings.push_back(cat("weight_decay=", *weight_decay));
  if (freeze) settings.emplace_back("freeze");
  if (rate == 1 && !weight_decay && !freeze) settings.emplace_back("rate=1");
  return cat(pattern, ":", join(settings, ","));
}

std::vector<VariableGroup> parse_groups(std::string_view text) {
  std::vector<VariableGroup> groups;
  for (const std::string_view group : split(text, ';'))
    groups.push_back(variable_groups::parse_group(group));
  check_groups(groups);
  return groups;
}

std::string text_of_groups(std::span<const VariableGroup> groups) {
  std::vector<std::string> texts;
  for (const VariableGroup& group : groups) texts.push_back(group.str());
  return join(texts, ";");
}

void check_groups(std::span<const VariableGroup> groups) {
  for (const VariableGroup& group : groups) {
    require(!group.pattern.empty() && group.pattern.find_first_of(":;,") == std::string::npos,
            "the group '", shown(group.str()),
            "' needs a pattern of the names of variables, without ':', ';' and ','");
    require(variable_groups::is_number(group.rate), "the group ", group.str(),
            ": its rate is a factor, a finite number >= 0");
    require(variable_groups::is_number(group.weight_decay.value_or(0)), "the group ", group.str(),
            ": its weight decay must be a finite number >= 0");
    const bool trains = group.rate != 1 || group.weight_decay;
    require(!group.freeze || !trains, "the group ", group.str(),
            " freezes its variables, so it can give them no rate and no weight decay");
  }
}

const VariableGroup* group_of(std::span<const VariableGroup> groups, std::string_view logical_name,
                              const Shape& shape) {
  const auto found = std::ranges::find_if(
      groups, [&](const VariableGroup& group) { return group.fits(logical_name, shape); });
  return found == groups.end() ? nullptr : &*found;
}

std::string refusal_of_groups(std::span<const VariableGroup> groups,
                              std::span<const Variable> variables,
                              const std::set<std::string, std::less<>>& frozen) {
  for (const VariableGroup& group : groups) {
    if (group.may_be_empty) continue;
    const auto could_be = [&](const Variable& v) {
      return (v.trainable() || frozen.contains(v.logical_name())) &&
             group.fits(v.logical_name(), v.shape());
    };
    const auto is_of_it = [&](const Variable& v) {
      return could_be(v) && group_of(groups, v.logical_name(), v.shape()) == &group;
    };
    if (std::ranges::any_of(variables, is_of_it)) continue;
    const auto fits = [&](const Variable& v) { return group.fits(v.logical_name(), v.shape()); };
    if (std::ranges::any_of(variables, fits))
      return cat(group.str(),
                 " has no effect: all that it fits is in groups before it, or not trained anyway; "
                 "put it before them, or leave it out");
    std::vector<std::string> names;
    for (const Variable& v : variables) names.emplace_back(v.logical_name());
    return cat(group.str(), " fits no variable of the model; near are ",
               names_near(group.pattern, names));
  }
  if (groups.empty() || std::ranges::any_of(variables, &Variable::trainable)) return "";
  return cat(text_of_groups(groups),
             " leaves nothing to train; let some variables fit no group that ", "freezes");
}

void FreezingGetter::request(VariableRequest& request) {
  const VariableGroup* const group = group_of(groups_, request.name, request.shape);
  if (group && group->freeze) request.options.trainable = false;
}

}  // namespace belfry
