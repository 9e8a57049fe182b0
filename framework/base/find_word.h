// The value of an enum, by its name.
#pragma once
#include <algorithm>
#include <span>
#include <string_view>

#include "belfry/framework/base/require.h"
#include "belfry/framework/base/text.h"

namespace belfry {

// `words` are the names of the values 0, 1, ... of an enum E. Throws InvalidArgument, with these
// names: "there is no layout 'x'; there are belfry, torch". `what` says what they name.
template <class E>
E find_word(std::span<const std::string_view> words, std::string_view word, std::string_view what) {
  const auto found = std::ranges::find(words, word);
  require(found != words.end(), "there is no ", what, " '", shown(word), "'; there are ",
          join(words));
  return static_cast<E>(found - words.begin());
}

}  // namespace belfry
