#include "belfry/framework/json.h"

#include <cmath>
#include <limits>
#include <set>
#include <vector>

#include <nlohmann/json.hpp>

#include "belfry/framework/error.h"

namespace belfry {

// Takes what nlohmann's parser finds, in order.
class JsonReader final : public nlohmann::json_sax<nlohmann::json> {
 public:
  Json take() { return std::move(root_); }

  bool null() override { return add({}); }
  bool boolean(bool value) override { return add(value); }
  bool number_integer(number_integer_t value) override { return add(std::int64_t{value}); }
  bool number_unsigned(number_unsigned_t value) override { return add(std::uint64_t{value}); }
  bool number_float(number_float_t value, const string_t& text) override {
    require(std::isfinite(value), "JSON: ", shown(text), " is no finite number");
    return add(value);
  }
  bool string(string_t& value) override { return add(std::move(value)); }
  bool binary(binary_t&) override { return false; }
  bool start_object(std::size_t) override { return open(Json::object()); }
  bool start_array(std::size_t) override { return open(Json::array()); }
  bool end_object() override { return close(); }
  bool end_array() override { return close(); }
  bool key(string_t& value) override {
    require(keys_.back().insert(value).second, "JSON: an object has two members '", shown(value),
            "'");
    key_ = std::move(value);
    return true;
  }
  bool parse_error(std::size_t position, const std::string&,
                   const nlohmann::json::exception& error) override {
    throw InvalidArgument(cat("JSON: byte ", position, ": ", shown(error.what(), 240)));
  }

 private:
  static constexpr std::size_t kDeepest = 64;

  Json* place(Json value) {
    if (open_.empty()) {
      root_ = std::move(value);
      return &root_;
    }
    Json& parent = *open_.back();
    if (parent.is_array()) return &parent.items_.emplace_back(std::move(value));
    return &parent.members_.emplace_back(std::move(key_), std::move(value)).second;
  }
  bool add(Json value) {
    place(std::move(value));
    return true;
  }
  bool open(Json value) {
    require(open_.size() < kDeepest, "JSON: nested deeper than ", kDeepest, " levels");
    open_.push_back(place(std::move(value)));
    keys_.emplace_back();
    return true;
  }
  bool close() {
    open_.pop_back();
    keys_.pop_back();
    return true;
  }

  Json root_;
  std::vector<Json*> open_;
  std::vector<std::set<std::string>> keys_;  // of the open objects; no large table
  std::string key_;
};

namespace {

using Text = nlohmann::ordered_json;

// nlohmann formats numbers and escapes strings; the structure is a few lines.
void print_leaf(std::string& out, const Text& value) {
  out += value.dump(-1, ' ', false, Text::error_handler_t::replace);
}

}  // namespace

Json::Json(double value) {
  if (!std::isfinite(value)) return;
  kind_ = Kind::kDouble;
  double_ = value;
}

Json Json::array() {
  Json value;
  value.kind_ = Kind::kArray;
  return value;
}

Json Json::object() {
  Json value;
  value.kind_ = Kind::kObject;
  return value;
}

Json Json::parse(std::string_view text) {
  // The parser takes a zero byte for the end of the text.
  const std::size_t zero = text.find('\0');
  require(zero == text.npos, "JSON: byte ", zero + 1, " is zero");
  JsonReader reader;
  nlohmann::json::sax_parse(text, &reader);
  return reader.take();
}

void Json::print(std::string& out, int indent, int level) const {
  const auto line = [&](int depth) {
    if (indent >= 0) out.append(1, '\n').append(static_cast<std::size_t>(indent * depth), ' ');
  };
  const auto list = [&](char open, char close, const auto& parts, const auto& print_part) {
    out += open;
    for (const auto& part : parts) {
      if (&part != &parts.front()) out += ',';
      line(level + 1);
      print_part(part);
    }
    if (!parts.empty()) line(level);
    out += close;
  };
  switch (kind_) {
    case Kind::kNull: out += "null"; break;
    case Kind::kBool: out += integer_ ? "true" : "false"; break;
    case Kind::kInteger: out += cat(integer_); break;
    case Kind::kUnsigned: out += cat(static_cast<std::uint64_t>(integer_)); break;
    case Kind::kDouble: print_leaf(out, double_); break;
    case Kind::kString: print_leaf(out, text_); break;
    case Kind::kArray:
      list('[', ']', items_, [&](const Json& item) { item.print(out, indent, level + 1); });
      break;
    case Kind::kObject:
      list('{', '}', members_, [&](const auto& member) {
        print_leaf(out, member.first);
        out += indent >= 0 ? ": " : ":";
        member.second.print(out, indent, level + 1);
      });
      break;
  }
}

std::string Json::str(int indent) const {
  std::string out;
  print(out, indent, 0);
  return out;
}

Json& Json::set(std::string_view key, Json value) {
  require_kind(Kind::kObject, "an object");
  for (auto& [name, member] : members_)
    if (name == key) {
      member = std::move(value);
      return *this;
    }
  members_.emplace_back(key, std::move(value));
  return *this;
}

Json& Json::push(Json value) {
  require_kind(Kind::kArray, "an array");
  items_.push_back(std::move(value));
  return *this;
}

void Json::require_kind(Kind kind, const char* name) const {
  require(kind_ == kind, "JSON: expected ", name);
}

std::int64_t Json::integer() const {
  require(is_integer(), "JSON: expected a whole number");
  require(kind_ == Kind::kInteger || integer_ >= 0, "JSON: ", static_cast<std::uint64_t>(integer_),
          " is too large");
  return integer_;
}

std::uint64_t Json::unsigned_integer() const {
  require(is_integer() && (kind_ == Kind::kUnsigned || integer_ >= 0),
          "JSON: expected a whole number that is not negative");
  return static_cast<std::uint64_t>(integer_);
}

double Json::number() const {
  if (kind_ == Kind::kUnsigned) return static_cast<double>(static_cast<std::uint64_t>(integer_));
  if (kind_ == Kind::kInteger) return static_cast<double>(integer_);
  require_kind(Kind::kDouble, "a number");
  return double_;
}

const std::string& Json::text() const {
  require_kind(Kind::kString, "a string");
  return text_;
}

const std::list<Json>& Json::items() const {
  require_kind(Kind::kArray, "an array");
  return items_;
}

const std::list<std::pair<std::string, Json>>& Json::members() const {
  require_kind(Kind::kObject, "an object");
  return members_;
}

const Json* Json::find(std::string_view key) const {
  for (const auto& [name, member] : members())
    if (name == key) return &member;
  return nullptr;
}

const Json& Json::at(std::string_view key) const {
  const Json* const found = find(key);
  require(found != nullptr, "JSON: there is no member '", key, "'");
  return *found;
}

}  // namespace belfry
