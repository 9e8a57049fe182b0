#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <limits>
#include <set>

#include "belfry/framework/error.h"
#include "belfry/framework/json.h"

namespace belfry {

// Reads one text from its start to its end, as RFC 8259 has it.
class JsonParser {
 public:
  explicit JsonParser(std::string_view text) : text_(text) {}

  Json whole() {
    if (text_.starts_with("\xef\xbb\xbf")) line_begin_ = at_ = 3;  // a byte order mark
    Json value = read_value(0);
    skip_space();
    if (at_ < text_.size()) fail("expected the end", at_);
    return value;
  }

 private:
  static constexpr int kDeepest = 64;

  // What is there, for messages: a word, a character, the end.
  std::string found(std::size_t at) const {
    if (at >= text_.size()) return "the end";
    const auto byte = static_cast<unsigned char>(text_[at]);
    if (byte < ' ' || byte > '~') return cat("byte 0x", hex(byte, 2));
    const std::size_t end = text_.find_first_of(" \t\r\n,:[]{}\"", at);
    const std::string_view word = text_.substr(at, std::max<std::size_t>(end - at, 1));
    return cat("'", shown(word, 20), "'");
  }
  [[noreturn]] void fail(std::string_view why, std::size_t at) const {
    throw InvalidArgument(
        cat("line ", line_, ", column ", at - line_begin_ + 1, ": ", why, ", found ", found(at)));
  }

  bool next_is(char c) const { return at_ < text_.size() && text_[at_] == c; }
  bool take(char c) {
    if (!next_is(c)) return false;
    ++at_;
    return true;
  }
  void skip_space() {
    for (; at_ < text_.size(); ++at_) {
      const char c = text_[at_];
      if (c == '\n') {
        ++line_;
        line_begin_ = at_ + 1;
      } else if (c != ' ' && c != '\t' && c != '\r') {
        return;
      }
    }
  }

  Json read_value(int depth) {
    skip_space();
    const std::uint32_t line = line_;
    const std::size_t column = at_ - line_begin_ + 1;
    Json value = read_bare(depth);
    value.line_ = line;
    value.column_ = static_cast<std::uint32_t>(
        std::min<std::size_t>(column, std::numeric_limits<std::uint32_t>::max()));
    return value;
  }
  Json read_bare(int depth) {
    if (next_is('{')) return read_object(depth + 1);
    if (next_is('[')) return read_array(depth + 1);
    if (next_is('"')) return read_text();
    if (at_ < text_.size() && (text_[at_] == '-' || is_digit(text_[at_]))) return read_number();
    const std::pair<std::string_view, Json> words[] = {
        {"true", true}, {"false", false}, {"null", Json()}};
    for (const auto& [word, value] : words)
      if (text_.substr(at_).starts_with(word)) {
        at_ += word.size();
        return value;
      }
    fail("expected a value", at_);
  }

  void require_shallow(int depth) const {
    if (depth > kDeepest) fail(cat("nested deeper than ", kDeepest, " levels"), at_);
  }
  Json read_object(int depth) {
    require_shallow(depth);
    ++at_;
    Json object = Json::object();
    std::set<std::string> names;  // no large table
    skip_space();
    if (take('}')) return object;
    do {
      skip_space();
      const std::size_t name_at = at_;
      if (!next_is('"')) fail(names.empty() ? "expected a name in quotes, or '}'" : kName, at_);
      std::string name = read_text();
      if (!names.insert(name).second)
        fail(cat("an object has two members '", shown(name), "'"), name_at);
      skip_space();
      if (!take(':')) fail("expected ':'", at_);
      object.members_.emplace_back(std::move(name), read_value(depth));
      skip_space();
    } while (take(','));
    if (!take('}')) fail("expected ',' or '}'", at_);
    return object;
  }
  Json read_array(int depth) {
    require_shallow(depth);
    ++at_;
    Json array = Json::array();
    skip_space();
    if (take(']')) return array;
    do {
      array.items_.push_back(read_value(depth));
      skip_space();
    } while (take(','));
    if (!take(']')) fail("expected ',' or ']'", at_);
    return array;
  }

  static bool is_digit(char c) { return c >= '0' && c <= '9'; }
  void skip_digits() {
    if (at_ >= text_.size() || !is_digit(text_[at_])) fail("expected a digit", at_);
    while (at_ < text_.size() && is_digit(text_[at_])) ++at_;
  }
  Json read_number() {
    const std::size_t begin = at_;
    take('-');
    if (!take('0')) skip_digits();
    const std::size_t whole_end = at_;
    if (take('.')) skip_digits();
    if (take('e') || take('E')) {
      if (!take('+')) take('-');
      skip_digits();
    }
    const std::string_view text = text_.substr(begin, at_ - begin);
    if (at_ == whole_end) {
      const char *const first = text.data(), *const last = first + text.size();
      std::int64_t integer = 0;
      std::uint64_t natural = 0;
      if (text[0] == '-' && std::from_chars(first, last, integer).ec == std::errc()) return integer;
      if (text[0] != '-' && std::from_chars(first, last, natural).ec == std::errc()) return natural;
    }
    // Unlike from_chars, it takes what is nearly 0 for what it is nearest to.
    const double value = std::strtod(std::string(text).c_str(), nullptr);
    if (!std::isfinite(value)) fail("expected a finite number", begin);
    return value;
  }

  std::string read_text() {
    const std::size_t begin = at_++;
    std::string text;
    while (!take('"')) {
      if (at_ == text_.size()) fail("a text has no '\"' at its end", begin);
      if (take('\\'))
        read_escape(text);
      else
        read_character(text);
    }
    return text;
  }
  void read_escape(std::string& text) {
    constexpr std::string_view kEscapes = "\"\\/bfnrt", kMeanings = "\"\\/\b\f\n\r\t";
    const std::size_t kind = at_ < text_.size() ? kEscapes.find(text_[at_]) : kEscapes.npos;
    if (kind != kEscapes.npos) {
      text += kMeanings[kind];
      ++at_;
      return;
    }
    const std::size_t begin = at_;
    if (!next_is('u')) fail("expected one of \"\\/bfnrtu behind a backslash", at_);
    std::uint32_t code = read_code_unit();
    if (code >= 0xD800 && code < 0xDC00 && text_.substr(at_).starts_with("\\u")) {
      ++at_;
      const std::uint32_t low = read_code_unit();
      if (low < 0xDC00 || low > 0xDFFF) fail(kSurrogate, begin);
      code = 0x10000 + ((code - 0xD800) << 10) + (low - 0xDC00);
    } else if (code >= 0xD800 && code < 0xE000) {
      fail(kSurrogate, begin);
    }
    append_utf8(text, code);
  }
  // "u00e9".
  std::uint32_t read_code_unit() {
    const std::string_view digits = text_.substr(++at_, 4);
    std::uint32_t code = 0;
    const auto [end, error] =
        std::from_chars(digits.data(), digits.data() + digits.size(), code, 16);
    if (digits.size() < 4 || error != std::errc() || end != digits.data() + 4)
      fail("expected four hexadecimal digits", at_);
    at_ += 4;
    return code;
  }
  static void append_utf8(std::string& text, std::uint32_t code) {
    const auto put = [&](std::uint32_t byte) { text += static_cast<char>(byte); };
    const auto more = [&](int shift) { put(0x80 | (code >> shift & 0x3F)); };
    if (code < 0x80) {
      put(code);
    } else if (code < 0x800) {
      put(0xC0 | code >> 6), more(0);
    } else if (code < 0x10000) {
      put(0xE0 | code >> 12), more(6), more(0);
    } else {
      put(0xF0 | code >> 18), more(12), more(6), more(0);
    }
  }

  void read_character(std::string& text) {
    const auto first = static_cast<unsigned char>(text_[at_]);
    if (first < ' ') fail("expected an escape such as \\n within a text", at_);
    // Of the first continuation byte: it rules out long forms, surrogates and what is above
    // U+10FFFF.
    unsigned char low = 0x80, high = 0xBF;
    std::size_t more = 0;
    if (first >= 0x80) {
      more = first < 0xC2 ? 0 : first < 0xE0 ? 1 : first < 0xF0 ? 2 : first < 0xF5 ? 3 : 0;
      if (first == 0xE0) low = 0xA0;
      if (first == 0xED) high = 0x9F;
      if (first == 0xF0) low = 0x90;
      if (first == 0xF4) high = 0x8F;
      if (more == 0) fail("expected UTF-8", at_);
    }
    for (std::size_t i = 1; i <= more; ++i, low = 0x80, high = 0xBF) {
      const auto byte = at_ + i < text_.size() ? static_cast<unsigned char>(text_[at_ + i]) : 0;
      if (byte < low || byte > high) fail("expected UTF-8", at_);
    }
    text += text_.substr(at_, more + 1);
    at_ += more + 1;
  }

  static constexpr std::string_view kName = "expected a name in quotes";
  static constexpr std::string_view kSurrogate =
      "expected two halves of one character, \\uD8.. \\uDC..";

  std::string_view text_;
  std::size_t at_ = 0, line_begin_ = 0;
  std::uint32_t line_ = 1;
};

Json Json::parse(std::string_view text) { return JsonParser(text).whole(); }

}  // namespace belfry
