// The meaning of tokens of text.
#pragma once
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace belfry {

class Vocabulary {
 public:
  virtual ~Vocabulary() = default;
  // Tokens are 0 to size() - 1.
  virtual std::int64_t size() const = 0;
  // Throws InvalidArgument naming a part of `text` that no token stands for.
  virtual std::vector<std::int32_t> encode(std::string_view text) const = 0;
  // Throws InvalidArgument for a number that is no token.
  std::string decode(std::span<const std::int32_t> tokens) const;
  // The bytes that a token stands for, which may be a part of a character. Throws InvalidArgument
  // for a number that is no token.
  virtual std::string text_of(std::int32_t token) const = 0;
  // Whether a decoded text lacks the space that its tokens begin with.
  virtual bool drops_first_space() const { return false; }
  // The token that ends a text, if there is one.
  virtual std::optional<std::int32_t> end_of_text() const { return {}; }
  // The files that define it; none if the text or the kind of tokens does.
  virtual std::vector<std::string> files() const { return {}; }
};

// Decodes a text that grows. `vocabulary` must outlive it.
class TextDecoder {
 public:
  explicit TextDecoder(const Vocabulary& vocabulary) : vocabulary_(vocabulary) {}
  // The bytes that one more token adds.
  std::string add(std::int32_t token);

 private:
  const Vocabulary& vocabulary_;
  bool has_begun_ = false;  // a token had some bytes
};

// A token is a byte.
class ByteVocabulary final : public Vocabulary {
 public:
  std::int64_t size() const override { return 256; }
  std::vector<std::int32_t> encode(std::string_view text) const override;
  std::string text_of(std::int32_t token) const override;
};

// A token is a character of Unicode: its place in `characters`.
class CharacterVocabulary final : public Vocabulary {
 public:
  // `characters`: code points, ascending.
  explicit CharacterVocabulary(std::vector<std::uint32_t> characters)
      : characters_(std::move(characters)) {}
  std::int64_t size() const override { return std::ssize(characters_); }
  std::vector<std::int32_t> encode(std::string_view text) const override;
  std::string text_of(std::int32_t token) const override;
  // -1 for a character outside of the vocabulary.
  std::int32_t token(std::uint32_t character) const;

 private:
  std::vector<std::uint32_t> characters_;
};

// A character of UTF-8 text.
struct Utf8Character {
  std::uint32_t code = 0;
  std::size_t bytes = 0;  // 0: the text does not begin with a whole character
};
// The first character of `text`, which is not empty. It has 0 bytes if `text` does not begin with
// UTF-8; overlong forms and surrogates are none.
Utf8Character first_character(std::string_view text);

}  // namespace belfry
