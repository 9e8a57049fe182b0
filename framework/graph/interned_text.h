// Short texts shared by many objects.
#pragma once
#include <compare>
#include <string>
#include <string_view>

namespace belfry {

// A text that the process stores once, until its end: for a few names that many objects have. It is
// as small as a pointer, and equal texts are the same pointer.
class InternedText {
 public:
  InternedText(std::string_view text);                                             // NOLINT
  InternedText(const char* text) : InternedText(std::string_view(text)) {}         // NOLINT
  InternedText(const std::string& text) : InternedText(std::string_view(text)) {}  // NOLINT

  const std::string& str() const { return *text_; }
  bool operator==(const InternedText&) const = default;
  // Orders by the texts.
  std::strong_ordering operator<=>(const InternedText& other) const {
    return *this == other ? std::strong_ordering::equal : *text_ <=> *other.text_;
  }

 private:
  const std::string* text_;
};

}  // namespace belfry
