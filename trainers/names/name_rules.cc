#include "belfry/trainers/names/name_rules.h"

#include <algorithm>

#include "belfry/framework/base/error.h"
#include "belfry/framework/base/require.h"
#include "belfry/framework/base/text.h"
#include "belfry/framework/checkpoint/safetensors.h"
#include "belfry/trainers/names/name_texts_impl.h"
#include "belfry/trainers/util/flag_values.h"

namespace belfry {
namespace {

namespace name_rules {

std::string_view trimmed(std::string_view text) {
  const std::size_t begin = text.find_first_not_of(" \t\r");
  if (begin == text.npos) return {};
  return text.substr(begin, text.find_last_not_of(" \t\r") - begin + 1);
}

// The two sides of the first `separator`; none without one.
std::optional<std::pair<std::string_view, std::string_view>> cut(std::string_view text,
                                                                 std::string_view separator) {
  const std::size_t at = text.find(separator);
  if (at == text.npos) return {};
  return std::pair{trimmed(text.substr(0, at)), trimmed(text.substr(at + separator.size()))};
}

std::vector<std::string> words_of(std::string_view text) {
  std::vector<std::string> words;
  for (const std::string_view word : split(text, ' '))
    if (!word.empty()) words.emplace_back(word);
  return words;
}

// What is in the first pair of `marks`, as "()", and what is around it.
struct Marked {
  std::string before, inside, after;
};
std::optional<Marked> find_marked(std::string_view text, std::string_view marks) {
  const std::size_t open = text.find(marks[0]);
  const std::size_t close = text.find(marks[1], open == text.npos ? 0 : open);
  require((open == text.npos) == (close == text.npos), "'", shown(text), "': '", marks[0],
          "' and '", marks[1], "' do not match");
  if (open == text.npos) return {};
  return Marked{std::string(text.substr(0, open)),
                std::string(text.substr(open + 1, close - open - 1)),
                std::string(text.substr(close + 1))};
}

// One name for each word of a list in it.
std::vector<std::string> listed_names(std::string_view text) {
  const std::optional<Marked> list = find_marked(text, "[]");
  if (!list) return {std::string(text)};
  std::vector<std::string> names;
  for (const std::string& word : words_of(list->inside))
    names.push_back(cat(list->before, word, list->after));
  require(names.size() > 1, "'", shown(text), "': a list has two words or more");
  return names;
}

// With what may be missing, and without it.
std::vector<NamePattern> spellings_of(const std::string& text) {
  const std::optional<Marked> optional = find_marked(text, "()");
  if (!optional) return {NamePattern(text)};
  return {NamePattern(cat(optional->before, optional->inside, optional->after)),
          NamePattern(cat(optional->before, optional->after))};
}

void read_step(std::string_view step, NameRule& rule) {
  if (const auto axes = cut(step, "->")) {
    require(!rule.axes, "axes are stated twice");
    rule.axes.emplace(axes->first, axes->second);
  } else if (step == "frozen") {
    rule.trained = false;
  } else if (step.starts_with("as ")) {
    rule.their_type = dtype_of_safetensors(upper(trimmed(step.substr(3))));
    require(is_floating(*rule.their_type), "'", shown(step), "': only f16, bf16, f32 and f64");
  } else if (step.starts_with("along ")) {
    const auto sizes = cut(step.substr(6), "=");
    rule.along = sizes ? sizes->first : trimmed(step.substr(6));
    if (sizes) rule.sizes = words_of(sizes->second);
  } else {
    throw InvalidArgument(
        cat("'", shown(step), "' is no step; there are AXES -> AXES, along AXIS, as TYPE, frozen"));
  }
}

void check_rule(const NameRule& rule) {
  std::vector<std::vector<std::string>> variables;
  for (const auto& spellings : rule.theirs)
    for (const NamePattern& spelling : spellings) variables.push_back(spelling.variables());
  for (const NamePattern& name : rule.ours) variables.push_back(name.variables());
  for (const auto& one : variables)
    require(one == variables.front(), "both sides must have the same numbers in braces");
  const std::size_t several = std::max(rule.theirs.size(), rule.ours.size());
  require(!rule.joins() || !rule.splits(), "only one side can have a list");
  require((several > 1) == !rule.along.empty(),
          several > 1 ? "a list needs the axis along which tensors are joined or split: along AXIS"
                      : "'along' has no use without a list of names");
  if (rule.along.empty()) return;
  require(rule.axes.has_value(), "'along ", rule.along, "' needs axes: out -> out");
  const auto place =
      rule.joins() ? rule.axes->place_after(rule.along) : rule.axes->place_before(rule.along);
  require(place.has_value(), "'along ", shown(rule.along), "': '", rule.axes->str(),
          "' has no such axis of its own ", rule.joins() ? "on the right" : "on the left");
  require(rule.sizes.empty() || rule.sizes.size() == several, "there are ", rule.sizes.size(),
          " lengths for ", several, " tensors");
}

NameRule read_rule(std::string_view line) {
  const auto sides = cut(line, " = ");
  require(sides.has_value(), "no rule: write THEIRS = OURS");
  NameRule rule;
  const auto steps = cut(sides->second, " : ");
  for (const std::string& name : listed_names(sides->first))
    rule.theirs.push_back(spellings_of(name));
  for (const std::string& name : listed_names(steps ? steps->first : sides->second))
    rule.ours.emplace_back(name);
  if (steps)
    for (const std::string_view step : split(steps->second, ',')) read_step(trimmed(step), rule);
  check_rule(rule);
  return rule;
}

// "16", or "block0/fc0/W[1]".
NameRules::Length read_length(std::string_view text) {
  const std::optional<Marked> axis = find_marked(text, "[]");
  if (axis && axis->after.empty() && !axis->before.empty())
    return NameRules::AxisOfOurs{axis->before,
                                 parse_number<std::uint32_t>("the axis", axis->inside)};
  const auto number = parse_number<std::int64_t>("the length", text);
  require(number > 0, "a length is above 0");
  return number;
}

void read_line(std::string_view line, NameRules& rules, int number) {
  const auto rest = [&](std::string_view word) { return trimmed(line.substr(word.size())); };
  if (line.starts_with("ignore ")) {
    rules.ignored.emplace_back(rest("ignore"));
  } else if (line.starts_with("let ")) {
    const auto sides = cut(rest("let"), "=");
    require(sides.has_value(), "write let AXIS = LENGTH");
    const bool is_new = rules.lengths.emplace(sides->first, read_length(sides->second)).second;
    require(is_new, "'", shown(sides->first), "' has a length already");
  } else if (line.starts_with("needs ")) {
    const auto sides = cut(rest("needs"), "=");
    require(sides.has_value(), "write needs OPTION=VALUE");
    const auto [needed, is_new] = rules.needs.emplace(sides->first, sides->second);
    require(is_new || needed->second == sides->second, "'", shown(sides->first), "' needs to be '",
            shown(needed->second), "' already; remove one of the two");
  } else {
    rules.rules.push_back(read_rule(line));
    rules.rules.back().line = number;
  }
}

void check_sizes(const NameRules& rules) {
  for (const NameRule& rule : rules.rules)
    for (const std::string& size : rule.sizes) {
      const bool is_number = size.find_first_not_of("0123456789") == size.npos && size.size() < 10;
      require(size == "*" || is_number || rules.lengths.contains(size), rules.place_of(rule),
              ": the length '", shown(size), "' is unknown; say it: let ", shown(size), " = ...");
    }
}

}  // namespace name_rules

}  // namespace

NamePattern::NamePattern(std::string_view text) {
  require(!text.empty() && text.find_first_of(" ()[]") == text.npos, "'", shown(text),
          "' is no name");
  for (std::string left(text); !left.empty();) {
    const std::optional<name_rules::Marked> number = name_rules::find_marked(left, "{}");
    if (!number) {
      pieces_.push_back({.text = left});
      break;
    }
    const std::string_view inside = number->inside;
    const std::size_t plus = std::min(inside.find('+'), inside.size());
    Piece piece{.text = number->before, .variable = std::string(inside.substr(0, plus))};
    const bool is_word = !piece.variable.empty() && std::ranges::all_of(piece.variable, [](char c) {
      return c >= 'a' && c <= 'z';
    });
    require(is_word, "'", shown(text), "': a number is written {i}, or {i+1}");
    if (plus < inside.size())
      piece.plus = parse_number<std::uint16_t>("the number", inside.substr(plus + 1));
    require(pieces_.empty() || !piece.text.empty(), "'", shown(text),
            "': two numbers need text between them");
    pieces_.push_back(std::move(piece));
    left = number->after;
  }
}

std::optional<NamePattern::Numbers> NamePattern::numbers_in(std::string_view name) const {
  constexpr std::size_t kMostDigits = 18;
  Numbers numbers;
  for (const Piece& piece : pieces_) {
    if (!name.starts_with(piece.text)) return {};
    name.remove_prefix(piece.text.size());
    if (piece.variable.empty()) continue;
    const std::size_t digits = std::min(name.find_first_not_of("0123456789"), name.size());
    if (digits == 0 || digits > kMostDigits || (digits > 1 && name[0] == '0')) return {};
    std::uint64_t number = 0;
    for (const char digit : name.substr(0, digits))
      number = 10 * number + static_cast<std::uint64_t>(digit - '0');
    if (number < piece.plus) return {};
    const auto [known, is_new] = numbers.emplace(piece.variable, number - piece.plus);
    if (!is_new && known->second != number - piece.plus) return {};
    name.remove_prefix(digits);
  }
  return name.empty() ? std::optional(numbers) : std::nullopt;
}

std::string NamePattern::name(const Numbers& numbers) const {
  std::string text;
  for (const Piece& piece : pieces_) {
    text += piece.text;
    if (!piece.variable.empty()) text += cat(numbers.at(piece.variable) + piece.plus);
  }
  return text;
}

std::vector<std::string> NamePattern::variables() const {
  std::vector<std::string> names;
  for (const Piece& piece : pieces_)
    if (!piece.variable.empty()) names.push_back(piece.variable);
  std::ranges::sort(names);
  names.erase(std::ranges::unique(names).begin(), names.end());
  return names;
}

NameRules NameRules::parse(std::string_view text, std::string name) {
  NameRules rules{.name = std::move(name)};
  int number = 0;
  for (const std::string_view raw : split(text, '\n')) {
    ++number;
    const std::string_view line = name_rules::trimmed(raw);
    if (line.empty() || line[0] == '#') continue;
    try {
      name_rules::read_line(line, rules, number);
    } catch (const Error& error) {
      throw InvalidArgument(cat(rules.name, ", line ", number, ": ", error.what()));
    }
  }
  name_rules::check_sizes(rules);
  require(!rules.rules.empty(), rules.name, ": has no rule THEIRS = OURS");
  return rules;
}

std::vector<std::string> known_name_rules() {
  std::vector<std::string> names;
  for (const NameText& text : name_texts()) names.emplace_back(text.name);
  return names;
}

NameRules find_name_rules(const std::string& name_or_file, FileSystem& files) {
  for (const auto& [name, text] : name_texts())
    if (name == name_or_file) return NameRules::parse(text, name_or_file);
  const bool is_file = name_or_file.find('/') != name_or_file.npos ||
                       name_or_file.find('.') != name_or_file.npos || files.exists(name_or_file);
  require(is_file, "there are no names '", shown(name_or_file), "'; there are ",
          join(known_name_rules()), ", or write a file of them",
          did_you_mean(name_or_file, known_name_rules()));
  const std::vector<std::byte> bytes = files.read(name_or_file);
  return NameRules::parse({reinterpret_cast<const char*>(bytes.data()), bytes.size()},
                          name_or_file);
}

std::string NameRules::place_of(const NameRule& rule) const {
  return cat(name, ", line ", rule.line);
}

}  // namespace belfry
