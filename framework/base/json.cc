#include "belfry/framework/base/json.h"

#include <algorithm>
#include <cmath>
#include <ranges>
#include <set>
#include <tuple>
#include <utility>
#include <vector>

#include <nlohmann/json.hpp>

#include "belfry/framework/base/error.h"
#include "belfry/framework/base/require.h"
#include "belfry/framework/base/text.h"

namespace belfry {

using Text = nlohmann::ordered_json;

// Keeps the places of the tokens that a parser reads one after another.
class JsonTokens {
 public:
  explicit JsonTokens(std::string_view text) : text_(text) {
    if (text.starts_with("\xef\xbb\xbf")) token_end_ = line_begin_ = 3;  // a byte order mark
  }

  void read_to(std::size_t bytes) { read_ = bytes; }
  std::size_t read() const { return read_; }
  // The start of the token that was just read. The parser does not report ',' and ':'.
  std::size_t begin() const {
    return std::min(text_.find_first_not_of(" \t\r\n,:", token_end_), text_.size());
  }
  void end() { token_end_ = read_; }
  void end_number() {
    // To find its end, the parser has read one byte more, unless the text ends in the number.
    const char last = text_[read_ - 1];
    token_end_ = read_ - (read_ < text_.size() || last < '0' || last > '9' ? 1 : 0);
  }

  // Line and column of byte `at`, which is not before the byte of the last call.
  std::pair<std::uint32_t, std::uint32_t> place(std::size_t at) {
    for (; located_ < at; ++located_)
      if (text_[located_] == '\n') {
        ++line_;
        line_begin_ = located_ + 1;
      }
    return {line_, static_cast<std::uint32_t>(at - line_begin_ + 1)};
  }
  [[noreturn]] void fail(std::size_t at, std::string_view why) {
    const auto [line, column] = place(at);
    throw InvalidArgument(cat("line ", line, ", column ", column, ": ", why));
  }

 private:
  const std::string_view text_;
  std::size_t read_ = 0;       // bytes that the parser took
  std::size_t token_end_ = 0;  // of the last token that was reported
  std::size_t located_ = 0, line_begin_ = 0;
  std::uint32_t line_ = 1;
};

// Makes a value from the events of nlohmann's parser.
class JsonReader final : public nlohmann::json_sax<Text> {
 public:
  explicit JsonReader(std::string_view text) : text_(text), tokens_(text) {}

  JsonValue read() {
    const auto bytes = text_ | std::views::transform([this](const char& byte) {
                         tokens_.read_to(static_cast<std::size_t>(&byte - text_.data()) + 1);
                         // The parser would take a zero byte as the end of the text.
                         if (byte == '\0') tokens_.fail(tokens_.read() - 1, "unexpected zero byte");
                         return byte;
                       });
    Text::sax_parse(bytes.begin(), bytes.end(), this);
    return std::move(root_);
  }

  bool null() override { return add({}); }
  bool boolean(bool value) override { return add(value); }
  bool number_integer(number_integer_t value) override { return add_number(value); }
  bool number_unsigned(number_unsigned_t value) override { return add_number(value); }
  bool number_float(number_float_t value, const string_t&) override { return add_number(value); }
  bool string(string_t& value) override { return add(std::move(value)); }
  bool binary(binary_t&) override { return false; }
  bool start_object(std::size_t) override { return open(JsonValue::object()); }
  bool start_array(std::size_t) override { return open(JsonValue::array()); }
  bool end_object() override { return close(); }
  bool end_array() override { return close(); }
  bool key(string_t& value) override {
    const std::size_t begin = tokens_.begin();
    if (!keys_.back().insert(value).second)
      tokens_.fail(begin, cat("an object has two members '", shown(value), "'"));
    key_ = std::move(value);
    tokens_.end();
    return true;
  }
  bool parse_error(std::size_t read, const std::string& token,
                   const nlohmann::json::exception& error) override {
    const std::size_t begin = std::min(tokens_.begin(), read - 1);  // it may be a ',' too many
    // Keep the words from "invalid" on, and quote the token instead of the text before it:
    // "[json.exception.parse_error.101] parse error at line 1, column 2: syntax error while
    // parsing value - invalid literal; last read: '[x'"
    std::string why = error.what();
    for (const std::string_view prefix_end : {"] ", " - "})
      if (const std::size_t at = why.find(prefix_end); at != why.npos)
        why.erase(0, at + prefix_end.size());
    const std::string last_read = cat("; last read: '", token, "'");
    if (const std::size_t at = why.find(last_read); at != why.npos)
      why.replace(at, last_read.size(), cat(" at '", shown(text_.substr(begin), 20), "'"));
    if (why.ends_with("; expected '}'") || why.ends_with("; expected ']'"))
      why.insert(why.size() - 3, "',' or ");
    tokens_.fail(begin, shown(why, 240));
  }

 private:
  static constexpr std::size_t kDeepest = 64;

  JsonValue* place(JsonValue value) {
    std::tie(value.line_, value.column_) = tokens_.place(tokens_.begin());
    tokens_.end();
    if (open_.empty()) return &(root_ = std::move(value));
    JsonValue& parent = *open_.back();
    if (parent.kind() == JsonValue::Kind::kArray)
      return &parent.items_.emplace_back(std::move(value));
    return &parent.members_.emplace_back(std::move(key_), std::move(value)).second;
  }
  bool add(JsonValue value) {
    place(std::move(value));
    return true;
  }
  bool add_number(JsonValue value) {
    add(std::move(value));
    tokens_.end_number();
    return true;
  }
  bool open(JsonValue value) {
    if (open_.size() == kDeepest)
      tokens_.fail(tokens_.begin(), cat("nested deeper than ", kDeepest, " levels"));
    open_.push_back(place(std::move(value)));
    keys_.emplace_back();
    return true;
  }
  bool close() {
    open_.pop_back();
    keys_.pop_back();
    tokens_.end();
    return true;
  }

  const std::string_view text_;
  JsonTokens tokens_;
  JsonValue root_;
  std::vector<JsonValue*> open_;
  std::vector<std::set<std::string>> keys_;  // of the open objects; sets need no large table
  std::string key_;
};

JsonValue JsonValue::parse(std::string_view text) { return JsonReader(text).read(); }

class JsonPrinter {
 public:
  // `indent` as in JsonValue::str().
  explicit JsonPrinter(int indent) : indent_(indent) {}

  std::string print(const JsonValue& value) {
    add(value, 0);
    return std::move(out_);
  }

 private:
  // nlohmann formats numbers and escapes strings; JsonPrinter writes the structure.
  void add_leaf(const Text& value) {
    out_ += value.dump(-1, ' ', false, Text::error_handler_t::replace);
  }
  void begin_line(int depth) {
    if (indent_ >= 0) out_.append(1, '\n').append(static_cast<std::size_t>(indent_ * depth), ' ');
  }
  void add_list(char open, char close, const auto& parts, int level, const auto& add_part) {
    out_ += open;
    for (const auto& part : parts) {
      if (&part != &parts.front()) out_ += ',';
      begin_line(level + 1);
      add_part(part);
    }
    if (!parts.empty()) begin_line(level);
    out_ += close;
  }
  void add(const JsonValue& value, int level) {
    using Kind = JsonValue::Kind;
    switch (value.kind_) {
      case Kind::kNull: out_ += "null"; break;
      case Kind::kBool: out_ += value.integer_ ? "true" : "false"; break;
      case Kind::kInteger: out_ += cat(value.integer_); break;
      case Kind::kUnsigned: out_ += cat(static_cast<std::uint64_t>(value.integer_)); break;
      case Kind::kDouble: add_leaf(value.double_); break;
      case Kind::kString: add_leaf(value.text_); break;
      case Kind::kArray:
        add_list('[', ']', value.items_, level,
                 [&](const JsonValue& item) { add(item, level + 1); });
        break;
      case Kind::kObject:
        add_list('{', '}', value.members_, level, [&](const auto& member) {
          add_leaf(member.first);
          out_ += indent_ >= 0 ? ": " : ":";
          add(member.second, level + 1);
        });
        break;
    }
  }

  const int indent_;
  std::string out_;
};

namespace {

[[noreturn]] void refuse(const JsonValue& value, const char* expected) {
  const JsonValue::Kind kind = value.kind();
  const bool array = kind == JsonValue::Kind::kArray, object = kind == JsonValue::Kind::kObject;
  const char* const what = array                              ? "an array"
                           : object                           ? "an object"
                           : kind == JsonValue::Kind::kString ? "the text "
                                                              : "";
  const std::string text = array || object ? "" : shown(value.str(), 40);
  throw InvalidArgument(cat(value.where(), "expected ", expected, ", found ", what, text));
}

void require_kind(const JsonValue& value, JsonValue::Kind kind, const char* name) {
  if (value.kind() != kind) refuse(value, name);
}

}  // namespace

JsonValue::JsonValue(double value) {
  if (!std::isfinite(value)) return;
  kind_ = Kind::kDouble;
  double_ = value;
}

JsonValue JsonValue::object() {
  JsonValue value;
  value.kind_ = Kind::kObject;
  return value;
}

std::string JsonValue::str(int indent) const { return JsonPrinter(indent).print(*this); }

JsonValue& JsonValue::set(std::string_view key, JsonValue value) {
  require_kind(*this, Kind::kObject, "an object");
  for (auto& [name, member] : members_)
    if (name == key) {
      member = std::move(value);
      return *this;
    }
  members_.emplace_back(key, std::move(value));
  return *this;
}

JsonValue& JsonValue::push(JsonValue value) {
  require_kind(*this, Kind::kArray, "an array");
  items_.push_back(std::move(value));
  return *this;
}

std::string JsonValue::where() const {
  return line_ > 0 ? cat("line ", line_, ", column ", column_, ": ") : "JSON: ";
}

std::int64_t JsonValue::integer() const {
  if (kind_ != Kind::kInteger && kind_ != Kind::kUnsigned) refuse(*this, "a whole number");
  if (kind_ == Kind::kUnsigned && integer_ < 0) refuse(*this, "a whole number below 2^63");
  return integer_;
}

std::uint64_t JsonValue::unsigned_integer() const {
  if (kind_ != Kind::kUnsigned && (kind_ != Kind::kInteger || integer_ < 0))
    refuse(*this, "a whole number that is not negative");
  return static_cast<std::uint64_t>(integer_);
}

double JsonValue::number() const {
  if (kind_ == Kind::kUnsigned) return static_cast<double>(static_cast<std::uint64_t>(integer_));
  if (kind_ == Kind::kInteger) return static_cast<double>(integer_);
  require_kind(*this, Kind::kDouble, "a number");
  return double_;
}

const std::string& JsonValue::text() const {
  require_kind(*this, Kind::kString, "a string");
  return text_;
}

const std::list<JsonValue>& JsonValue::items() const {
  require_kind(*this, Kind::kArray, "an array");
  return items_;
}

const std::list<std::pair<std::string, JsonValue>>& JsonValue::members() const {
  require_kind(*this, Kind::kObject, "an object");
  return members_;
}

const JsonValue* JsonValue::find(std::string_view key) const {
  for (const auto& [name, member] : members())
    if (name == key) return &member;
  return nullptr;
}

const JsonValue& JsonValue::at(std::string_view key) const {
  const JsonValue* const found = find(key);
  require(found != nullptr, where(), "there is no member '", key, "' in this object");
  return *found;
}

}  // namespace belfry
