#include "belfry/framework/json.h"

#include <cmath>

#include <nlohmann/json.hpp>

#include "belfry/framework/error.h"

namespace belfry {

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

std::string Json::where() const {
  return line_ > 0 ? cat("line ", line_, ", column ", column_, ": ") : "JSON: ";
}

void Json::refuse(const char* expected) const {
  const char* const what = is_array()    ? "an array"
                           : is_object() ? "an object"
                           : is_string() ? "the text "
                                         : "";
  const std::string value = is_array() || is_object() ? "" : shown(str(), 40);
  throw InvalidArgument(cat(where(), "expected ", expected, ", found ", what, value));
}

void Json::require_kind(Kind kind, const char* name) const {
  if (kind_ != kind) refuse(name);
}

std::int64_t Json::integer() const {
  if (!is_integer()) refuse("a whole number");
  if (kind_ == Kind::kUnsigned && integer_ < 0) refuse("a whole number below 2^63");
  return integer_;
}

std::uint64_t Json::unsigned_integer() const {
  if (!is_integer() || (kind_ == Kind::kInteger && integer_ < 0))
    refuse("a whole number that is not negative");
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
  require(found != nullptr, where(), "there is no member '", key, "' in this object");
  return *found;
}

}  // namespace belfry
