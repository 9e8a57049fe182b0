// Cuts text by a regular expression. Wraps PCRE2, which only text_pattern.cc includes.
#pragma once
#include <cstdint>
#include <functional>
#include <memory>
#include <string_view>

namespace belfry {

// An expression of Perl with Unicode's classes of characters, such as \p{L}.
class TextPattern {
 public:
  enum class Form : bool { kExpression, kLiteral };
  enum class Keep : std::uint8_t { kAll, kMatches, kRest };  // which parts become pieces

  // Throws InvalidArgument, with the place, for what is no expression.
  TextPattern(std::string_view expression, Form form, Keep keep);
  ~TextPattern();
  TextPattern(TextPattern&&) noexcept;

  // Calls `use` with the pieces of `text` in order: matches and what lies between them, as far as
  // they are kept. None is empty. The text is UTF-8. Any thread may call it. Throws Error if the
  // expression takes too many attempts to match.
  void cut(std::string_view text, const std::function<void(std::string_view)>& use) const;

 private:
  struct Compiled;
  std::unique_ptr<Compiled> compiled_;
  Keep keep_;
};

}  // namespace belfry
