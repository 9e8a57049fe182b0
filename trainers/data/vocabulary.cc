#include "belfry/trainers/data/vocabulary.h"

#include <algorithm>
#include <bit>

#include "belfry/framework/base/require.h"
#include "belfry/framework/base/text.h"

namespace belfry {
namespace {

void require_token(std::int32_t token, std::int64_t size) {
  require(token >= 0 && token < size, "token ", token, " of a vocabulary of ", size);
}

void append_utf8(std::uint32_t code, std::string& to) {
  const auto rest = [&](int shift) { to += static_cast<char>(0x80 | ((code >> shift) & 0x3F)); };
  if (code < 0x80) {
    to += static_cast<char>(code);
  } else if (code < 0x800) {
    to += static_cast<char>(0xC0 | (code >> 6));
    rest(0);
  } else if (code < 0x10000) {
    to += static_cast<char>(0xE0 | (code >> 12));
    rest(6);
    rest(0);
  } else {
    to += static_cast<char>(0xF0 | (code >> 18));
    rest(12);
    rest(6);
    rest(0);
  }
}

}  // namespace

Utf8Character first_character(std::string_view text) {
  const auto byte = [&](std::size_t i) { return static_cast<std::uint8_t>(text[i]); };
  const int ones = std::countl_one(byte(0));
  if (ones == 0) return {byte(0), 1};
  constexpr std::uint32_t kLeast[] = {0, 0, 0x80, 0x800, 0x10000};
  const auto bytes = static_cast<std::size_t>(ones);
  if (ones == 1 || ones > 4 || text.size() < bytes) return {};
  std::uint32_t code = byte(0) & (0xFFu >> (ones + 1));
  for (std::size_t i = 1; i < bytes; ++i) {
    if ((byte(i) & 0xC0) != 0x80) return {};
    code = code << 6 | (byte(i) & 0x3Fu);
  }
  const bool surrogate = code >= 0xD800 && code < 0xE000;
  if (code < kLeast[ones] || code > 0x10FFFF || surrogate) return {};
  return {code, bytes};
}

std::string Vocabulary::decode(std::span<const std::int32_t> tokens) const {
  TextDecoder decoder(*this);
  std::string text;
  for (const std::int32_t token : tokens) text += decoder.add(token);
  return text;
}

std::string TextDecoder::add(std::int32_t token) {
  std::string text = vocabulary_.text_of(token);
  if (!has_begun_ && vocabulary_.drops_first_space() && text.starts_with(' ')) {
    has_begun_ = true;
    return text.substr(1);
  }
  has_begun_ = has_begun_ || !text.empty();
  return text;
}

std::vector<std::int32_t> ByteVocabulary::encode(std::string_view text) const {
  std::vector<std::int32_t> tokens;
  for (const char c : text) tokens.push_back(static_cast<std::uint8_t>(c));
  return tokens;
}

std::string ByteVocabulary::text_of(std::int32_t token) const {
  require_token(token, size());
  return std::string(1, static_cast<char>(token));
}

std::int32_t CharacterVocabulary::token(std::uint32_t character) const {
  const auto found = std::ranges::lower_bound(characters_, character);
  if (found == characters_.end() || *found != character) return -1;
  return static_cast<std::int32_t>(found - characters_.begin());
}

std::vector<std::int32_t> CharacterVocabulary::encode(std::string_view text) const {
  std::vector<std::int32_t> tokens;
  while (!text.empty()) {
    const Utf8Character next = first_character(text);
    require(next.bytes > 0, "'", shown(text), "' is no UTF-8");
    tokens.push_back(token(next.code));
    require(tokens.back() >= 0, "the character '", shown(text.substr(0, next.bytes)),
            "' is none of the ", size(), " of the text");
    text.remove_prefix(next.bytes);
  }
  return tokens;
}

std::string CharacterVocabulary::text_of(std::int32_t token) const {
  require_token(token, size());
  std::string text;
  append_utf8(characters_[static_cast<std::size_t>(token)], text);
  return text;
}

}  // namespace belfry
