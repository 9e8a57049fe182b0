// Options of ops in files: a list of the values of the struct's fields, in their order. An op that
// files may hold, and that has options, says so beside its definition:
//   const StoredOptions<ClipOptions> kStoredClip(kClip);
// New fields of a struct go to its end: files that lack them read as their defaults.
#pragma once
#include <cmath>
#include <concepts>
#include <cstdint>
#include <limits>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "belfry/framework/base/json.h"
#include "belfry/framework/base/require.h"
#include "belfry/framework/graph/op.h"

namespace belfry {

struct OptionsForm {
  JsonValue (*write)(const NodeOptions& options);
  // Throws InvalidArgument for a list that no such options have.
  NodeOptions (*read)(const JsonValue& list);
};

// Null for an op that has not said how its options are stored: it has none, or no file holds it.
const OptionsForm* options_form(const Op& op);

namespace detail {

void add_options_form(const Op& op, const OptionsForm& form);

template <class T>
concept HasNumbers = requires(const T& value) {
  { numbers_of(value) } -> std::same_as<std::vector<std::int64_t>>;
};

template <class T>
concept IsList = requires(T& value) {
  value.push_back(value.front());
};

JsonValue stored_number(double value);     // a text if it is not finite
double number_in(const JsonValue& value);  // the reverse
JsonValue stored_shape(const Shape& shape);
Shape shape_in(const JsonValue& value);

template <class T>
JsonValue stored(const T& value) {
  if constexpr (std::is_enum_v<T>) {
    return static_cast<std::int64_t>(value);
  } else if constexpr (std::floating_point<T>) {
    return stored_number(value);
  } else if constexpr (std::integral<T> || std::same_as<T, std::string>) {
    return value;
  } else if constexpr (std::same_as<T, Shape>) {
    return stored_shape(value);
  } else if constexpr (HasNumbers<T>) {
    return JsonValue::array(numbers_of(value));
  } else if constexpr (IsList<T>) {
    JsonValue list = JsonValue::array();
    for (const auto& item : value) list.push(stored(item));
    return list;
  } else {
    JsonValue list = JsonValue::array();
    for_each_field(value, [&](const auto& field) { list.push(stored(field)); });
    return list;
  }
}

template <class T>
void read_stored(const JsonValue& from, T& value);

template <class T>
void read_fields(const JsonValue& from, T& value) {
  auto item = from.items().begin();
  for_each_field(value, [&]<class F>(const F& field) {
    if (item != from.items().end()) read_stored(*item++, const_cast<F&>(field));  // of `value`
  });
  require(item == from.items().end(), from.where(), "has ", from.items().size(),
          " options, which are more than this version knows");
}

template <class T>
void read_stored(const JsonValue& from, T& value) {
  if constexpr (std::same_as<T, bool>) {
    require(from.kind() == JsonValue::Kind::kBool, from.where(), "is no true or false");
    value = from.str() == "true";
  } else if constexpr (std::is_enum_v<T> || std::integral<T>) {
    const std::int64_t number = from.integer();
    value = static_cast<T>(number);
    require(static_cast<std::int64_t>(value) == number, from.where(), number, " is out of range");
    if constexpr (std::same_as<T, DType>)
      require(value <= DType::kBool, from.where(), number, " is no dtype");
  } else if constexpr (std::floating_point<T>) {
    value = static_cast<T>(number_in(from));
  } else if constexpr (std::same_as<T, std::string>) {
    value = from.text();
  } else if constexpr (std::same_as<T, Shape>) {
    value = shape_in(from);
  } else if constexpr (HasNumbers<T>) {
    std::vector<std::int64_t> numbers;
    read_stored(from, numbers);
    set_numbers(value, numbers);
  } else if constexpr (IsList<T>) {
    value.clear();
    for (const JsonValue& item : from.items()) read_stored(item, value.emplace_back());
  } else {
    read_fields(from, value);
  }
}

}  // namespace detail

// Made beside the definitions of ops; T: the options of them all.
template <class T>
struct StoredOptions {
  template <std::same_as<Op>... Ops>
  explicit StoredOptions(const Ops&... ops) {
    (detail::add_options_form(ops, {write, read}), ...);
  }

 private:
  static JsonValue write(const NodeOptions& options) { return detail::stored(options.as<T>()); }
  static NodeOptions read(const JsonValue& list) {
    T value{};
    detail::read_fields(list, value);
    return NodeOptions(std::move(value));
  }
};

}  // namespace belfry
