#include "belfry/trainers/flags/flag_spellings.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "belfry/framework/base/require.h"
#include "belfry/framework/base/text.h"

namespace belfry {
namespace {

template <class T>
std::optional<T> number_in(std::string_view text) {
  T number = 0;
  const char* const end = text.data() + text.size();
  const auto [stop, error] = std::from_chars(text.data(), end, number);
  return error == std::errc() && stop == end ? std::optional(number) : std::nullopt;
}

// Compares integers first, as large ones are not all floating-point numbers.
bool is_same_number(std::string_view a, std::string_view b) {
  const auto m = number_in<std::uint64_t>(a), n = number_in<std::uint64_t>(b);
  if (m && n) return m == n;
  const auto x = number_in<double>(a), y = number_in<double>(b);
  return x && y && x == y;
}

// "1e-1" means the same as 0.1, and "CPU:4" as cpu:4.
bool means_same(const std::string& a, const std::string& b) {
  return underscores_in_names(lower(a)) == underscores_in_names(lower(b)) || is_same_number(a, b);
}

}  // namespace

FlagSpelling renamed(std::string name, std::string unit, std::string flag) {
  std::string text = cat("--", flag, "=", unit);
  return {std::move(name), std::move(unit), std::move(text),
          [flag](const WrittenFlag& self, const WrittenFlags&) -> std::vector<WrittenFlag> {
            return {{flag, self.value, {}}};
          }};
}

FlagSpelling only(std::string name, std::string unit, std::string value, std::string why) {
  return {std::move(name), std::move(unit), "",
          [value, why](const WrittenFlag& self, const WrittenFlags&) -> std::vector<WrittenFlag> {
            require<FlagError>(!value.empty() && lower(self.value) == lower(value), self.written,
                               ": ", why);
            return {};
          }};
}

FlagSpelling refused(std::string name, std::string why) {
  return only(std::move(name), "VALUE", "", std::move(why));
}

namespace {

// Whoever reads the error finds the flag that was written in it, as for other flags.
std::vector<WrittenFlag> translated(const FlagSpelling& spelling, const WrittenFlag& flag,
                                    const WrittenFlags& line) {
  try {
    return spelling.translate(flag, line);
  } catch (const FlagError& error) {
    ErrorFields fields = error.fields();
    if (fields.option.empty()) fields.option = flag.name;
    throw FlagError(std::move(fields));
  }
}

}  // namespace

WrittenFlags in_our_spelling(const WrittenFlags& line, std::span<const FlagSpelling> spellings) {
  const auto spelling_of = [&](const std::string& name) {
    return std::ranges::find(spellings, name, &FlagSpelling::name);
  };
  WrittenFlags ours;
  for (const WrittenFlag& flag : line.all())
    if (spelling_of(flag.name) == spellings.end()) ours.add(flag);
  for (const WrittenFlag& other : line.all()) {
    const auto spelling = spelling_of(other.name);
    if (spelling == spellings.end()) continue;
    for (WrittenFlag& flag : translated(*spelling, other, line)) {
      if (flag.written.empty()) flag.written = other.written;
      flag.of_file = other.of_file;
      const WrittenFlag* const same = ours.find(flag.name);
      if (same && !means_same(same->value, flag.value))
        throw FlagError(about_option(flag.name, same->written, " and ", flag.written,
                                     ", which stands for --", flag.name, "=", flag.value,
                                     ", contradict each other; leave one of them out"));
      if (!same) ours.add(std::move(flag));
    }
  }
  return ours;
}

}  // namespace belfry
