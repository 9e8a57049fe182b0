// Rows for fields of the usual types. Each takes the field and the rest of its row:
//   whole_number(&Data::workers, 1, 64, {.name = "workers", .unit = "N", .text = "threads"})
#pragma once
#include <algorithm>
#include <optional>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "belfry/framework/base/require.h"
#include "belfry/trainers/options/option.h"
#include "belfry/trainers/options/own_option.h"

namespace belfry {

// A whole number in [least, most].
template <class S, class T>
Option<S> whole_number(T S::*field, std::type_identity_t<T> least, std::type_identity_t<T> most,
                       OptionRow row) {
  Option<S> option{std::move(row)};
  option.read = [=](S& held, const WrittenFlag& flag) {
    read_integer(flag, least, most, held.*field);
  };
  option.value = [=](const S& held) { return JsonValue(held.*field); };
  return option;
}

// The same, or none, which has no value().
template <class S, class T>
Option<S> whole_number(std::optional<T> S::*field, T least, T most, OptionRow row) {
  Option<S> option{std::move(row)};
  option.read = [=](S& held, const WrittenFlag& flag) {
    T read{};
    read_integer(flag, least, most, read);
    held.*field = read;
  };
  option.value = [=](const S& held) {
    return held.*field ? JsonValue(*(held.*field)) : JsonValue();
  };
  return option;
}

// A finite number that is `allowed`, which `wanted` describes (read_number()). T is double or
// std::optional<double>, which has no value() without a number.
template <class S, class T>
Option<S> number(T S::*field, std::string wanted, bool (*allowed)(double), OptionRow row) {
  Option<S> option{std::move(row)};
  option.read = [=](S& held, const WrittenFlag& flag) {
    double read = 0;
    read_number(flag, wanted, allowed, read);
    held.*field = read;
  };
  option.value = [=](const S& held) {
    if constexpr (std::is_same_v<T, double>)
      return JsonValue(held.*field);
    else
      return held.*field ? JsonValue(*(held.*field)) : JsonValue();
  };
  return option;
}

// True or false. A row without a unit makes a switch, which sets true if it has no value.
template <class S>
Option<S> on_off(bool S::*field, OptionRow row) {
  Option<S> option{std::move(row)};
  option.read = [=](S& held, const WrittenFlag& flag) {
    held.*field = read_switch(flag.written, flag.value);
  };
  option.value = [=](const S& held) { return JsonValue(held.*field); };
  return option;
}

// Any text.
template <class S>
Option<S> any_text(std::string S::*field, OptionRow row) {
  Option<S> option{std::move(row)};
  option.read = [=](S& held, const WrittenFlag& flag) { held.*field = flag.value; };
  option.value = [=](const S& held) { return JsonValue(held.*field); };
  return option;
}

// A value that `make` makes from the flag, or from its text. If it takes the text, errors of `make`
// are turned into errors about the flag. `show` turns the value into JSON; nullptr: there is no
// value().
template <class S, class T, class Make, class Show = std::nullptr_t>
Option<S> parsed(T S::*field, Make make, OptionRow row, Show show = nullptr) {
  Option<S> option{std::move(row)};
  option.read = [=](S& held, const WrittenFlag& flag) {
    if constexpr (std::is_invocable_v<Make, const WrittenFlag&>)
      held.*field = make(flag);
    else
      held.*field = as_flag(flag.written, [&] { return make(flag.value); });
  };
  if constexpr (!std::is_same_v<Show, std::nullptr_t>)
    option.value = [=](const S& held) { return JsonValue(show(held.*field)); };
  return option;
}

// The row of an OwnOption, which sets its variable and no field of S. `whose`: OwnOption::row().
template <class S>
Option<S> own_option(const OwnOption& own, std::string_view whose) {
  Option<S> option{own.row(whose)};
  option.read = [own](S&, const WrittenFlag& flag) { own.read(flag); };
  option.value = [own](const S&) { return own.value(); };
  return option;
}

// Reads one of two words: true for the second.
inline bool is_second(const WrittenFlag& flag, std::string_view first, std::string_view second) {
  detail::require<FlagError>(flag.value == first || flag.value == second, flag.written,
                             " is neither ", first, " nor ", second);
  return flag.value == second;
}

// One of two words, each of which stands for a value.
template <class S, class T>
Option<S> one_of_two(T S::*field, std::type_identity_t<std::pair<const char*, T>> first,
                     std::type_identity_t<std::pair<const char*, T>> second, OptionRow row) {
  Option<S> option{std::move(row)};
  option.read = [=](S& held, const WrittenFlag& flag) {
    held.*field = is_second(flag, first.first, second.first) ? second.second : first.second;
  };
  option.value = [=](const S& held) {
    return JsonValue(held.*field == second.second ? second.first : first.first);
  };
  return option;
}

// One of several words, each of which stands for a value.
template <class S, class T>
Option<S> one_of(T S::*field, std::type_identity_t<std::vector<std::pair<const char*, T>>> words,
                 OptionRow row) {
  Option<S> option{std::move(row)};
  option.read = [=](S& held, const WrittenFlag& flag) {
    std::vector<std::string> names;
    for (const auto& [name, value] : words) {
      if (flag.value == name) {
        held.*field = value;
        return;
      }
      names.emplace_back(name);
    }
    throw FlagError(
        cat(flag.written, " is none of ", join(names), did_you_mean(flag.value, names)));
  };
  option.value = [=](const S& held) {
    const auto same = [&](const auto& word) { return word.second == held.*field; };
    return JsonValue(std::ranges::find_if(words, same)->first);
  };
  return option;
}

}  // namespace belfry
