#include "belfry/trainers/program/flag_spellings.h"

#include <algorithm>
#include <utility>

#include "belfry/framework/base/text.h"

namespace belfry {

void WrittenFlags::add(WrittenFlag flag) {
  std::erase_if(flags_, [&](const WrittenFlag& other) { return other.name == flag.name; });
  flags_.push_back(std::move(flag));
}

const WrittenFlag* WrittenFlags::find(std::string_view name) const {
  const auto found = std::ranges::find(flags_, name, &WrittenFlag::name);
  return found == flags_.end() ? nullptr : &*found;
}

std::string WrittenFlags::value(std::string_view name, std::string otherwise) const {
  const WrittenFlag* const flag = find(name);
  return flag ? flag->value : std::move(otherwise);
}

FlagValue value_of(const WrittenFlag& flag) {
  FlagValue value;
  value.set(flag.value, flag.written);
  return value;
}

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
    for (WrittenFlag& flag : spelling->translate(other, line)) {
      if (flag.written.empty()) flag.written = other.written;
      const WrittenFlag* const same = ours.find(flag.name);
      require<FlagError>(!same || same->value == flag.value, same ? same->written : "", " and ",
                         flag.written, ", which stands for --", flag.name, "=", flag.value,
                         ", contradict each other; leave one of them out");
      if (!same) ours.add(std::move(flag));
    }
  }
  return ours;
}

}  // namespace belfry
