// The files of names that Belfry has, in a source that the build generates.
#pragma once
#include <span>
#include <string_view>

namespace belfry {

struct NameText {
  std::string_view name, text;  // "gpt2", and the content of gpt2.names
};
// Sorted by name.
std::span<const NameText> name_texts();

}  // namespace belfry
