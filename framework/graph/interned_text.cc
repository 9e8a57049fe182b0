#include "belfry/framework/graph/interned_text.h"

#include <mutex>
#include <set>

namespace belfry {

InternedText::InternedText(std::string_view text) {
  static std::mutex mutex;
  static auto& texts = *new std::set<std::string, std::less<>>;  // for statics that end later
  const std::lock_guard lock(mutex);
  auto known = texts.find(text);
  if (known == texts.end()) known = texts.emplace(text).first;
  text_ = &*known;
}

}  // namespace belfry
