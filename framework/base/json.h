// JSON, read and written. Wraps nlohmann-json, which only json.cc includes.
#pragma once
#include <concepts>
#include <cstdint>
#include <initializer_list>
#include <list>
#include <string>
#include <string_view>
#include <utility>

namespace belfry {

// The limit of programs for a file or header of JSON, in bytes. Parsing one takes some 70 times as
// much memory.
inline constexpr std::uint64_t kMostJsonBytes = std::uint64_t{4} << 20;

// One JSON value. Objects keep their members in order of insertion.
//   JsonValue report = JsonValue::object();
//   report.set("steps", 3).set("loss", JsonValue());   // {"steps": 3, "loss": null}
class JsonValue {
 public:
  enum class Kind : std::uint8_t {
    kNull,
    kBool,
    kInteger,
    kUnsigned,
    kDouble,
    kString,
    kArray,
    kObject
  };

  JsonValue() = default;                                          // null
  JsonValue(bool value) : kind_(Kind::kBool), integer_(value) {}  // NOLINT
  template <std::integral T>
  requires(!std::same_as<T, bool>) JsonValue(T value)  // NOLINT
      : kind_(std::is_signed_v<T> ? Kind::kInteger : Kind::kUnsigned),
        integer_(static_cast<std::int64_t>(value)) {}
  // Null unless it is finite: JSON has no other numbers.
  JsonValue(double value);  // NOLINT
  template <std::convertible_to<std::string_view> T>
  JsonValue(const T& value) : kind_(Kind::kString), text_(value) {}  // NOLINT
  static JsonValue object();
  // An array of values that a JsonValue can be made of; empty without any.
  template <class Values = std::initializer_list<JsonValue>>
  static JsonValue array(const Values& values = {}) {
    JsonValue list;
    list.kind_ = Kind::kArray;
    for (const auto& value : values) list.push(value);
    return list;
  }

  // Throws InvalidArgument if `text` is no JSON, nests deeper than 64 levels, or repeats a member
  // of an object. The error names line and column (in bytes, from 1) of the token at fault, and
  // what was expected there. Each value keeps its place in the text.
  static JsonValue parse(std::string_view text);
  // Text with `indent` spaces per level, or on one line. Bytes that are not UTF-8 are replaced.
  std::string str(int indent = -1) const;

  // Adds a member to an object, or replaces it.
  JsonValue& set(std::string_view key, JsonValue value);
  // Adds an element to an array.
  JsonValue& push(JsonValue value);

  Kind kind() const { return kind_; }
  // How errors about this value begin: "line 3, column 14: " if it was read, else "JSON: ".
  std::string where() const;

  // These throw InvalidArgument for a value of another kind, with where(), the expected kind and
  // the value. integer() also throws for a value above 2^63 - 1.
  std::int64_t integer() const;
  std::uint64_t unsigned_integer() const;  // throws for a negative one, too
  double number() const;
  const std::string& text() const;
  const std::list<JsonValue>& items() const;  // of an array
  const std::list<std::pair<std::string, JsonValue>>& members() const;
  // The member of an object; null if there is none.
  const JsonValue* find(std::string_view key) const;
  // The member of an object. Throws InvalidArgument naming `key` and where() if there is none.
  const JsonValue& at(std::string_view key) const;

 private:
  friend class JsonReader;
  friend class JsonPrinter;

  Kind kind_ = Kind::kNull;
  std::uint32_t line_ = 0, column_ = 0;  // 0: made by a program
  std::int64_t integer_ = 0;
  double double_ = 0;
  std::string text_;
  // Lists, because no text of n bytes then causes one allocation of many times n.
  std::list<JsonValue> items_;
  std::list<std::pair<std::string, JsonValue>> members_;
};

}  // namespace belfry
