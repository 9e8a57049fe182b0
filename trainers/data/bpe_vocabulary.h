// Tokens of byte-pair encoding (Sennrich et al. 2016; of bytes: Radford et al. 2019).
#pragma once
#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "belfry/trainers/data/text_pattern.h"
#include "belfry/trainers/data/vocabulary.h"

namespace belfry {

// The added token between the texts of GPT-2.
inline constexpr std::string_view kEndOfText = "<|endoftext|>";

// What a tokenizer does, in this order: it finds added tokens, changes the text between them, cuts
// it into pieces, and merges the symbols of each piece, bytes or characters.
struct BpeRules {
  struct Added {
    std::string text;
    std::int32_t token = 0;
  };
  // Replaces `from` everywhere; if it is "", writes `to` before the text.
  struct Change {
    std::string from, to;
    bool unless_there = false;  // not before a text that begins with `to`
    bool at_start = false;      // only before what the whole text begins with
  };
  struct Merge {
    std::int32_t left = 0, right = 0, result = 0;
  };

  std::vector<std::string> tokens;  // the text of each; "" for numbers without a token
  std::vector<Added> added;
  std::vector<Change> changes;
  std::vector<TextPattern> cuts;  // each cuts the pieces of those before it
  bool of_bytes = false;          // symbols are bytes, not characters
  // The token of each byte: a symbol, or what stands for a part of a character that has no token;
  // -1: none.
  std::array<std::int32_t, 256> bytes{};
  // Tokens by their texts, as symbols and whole pieces.
  std::unordered_map<std::string, std::int32_t> symbols;
  std::vector<Merge> merges;   // the first comes first
  bool takes_whole = false;    // a piece that is a token is not merged of symbols
  std::int32_t unknown = -1;   // the token of characters that have none; -1: they are refused
  bool fuses_unknown = false;  // one for several in a row
  bool drops_space = false;    // the first one of decoded text
  std::vector<std::string> files = {};
};

class BpeVocabulary final : public Vocabulary {
 public:
  explicit BpeVocabulary(BpeRules rules);
  std::int64_t size() const override { return std::ssize(rules_.tokens); }
  // Bytes that are no UTF-8 become pieces of their own.
  std::vector<std::int32_t> encode(std::string_view text) const override;
  std::string text_of(std::int32_t token) const override;
  bool drops_first_space() const override { return rules_.drops_space; }
  // The added token kEndOfText.
  std::optional<std::int32_t> end_of_text() const override;
  std::vector<std::string> files() const override { return rules_.files; }

 private:
  struct Ranked {
    std::int32_t rank, result;
  };

  const BpeRules::Added* added_at(std::string_view text) const;
  void encode_between(std::string text, bool is_first, std::vector<std::int32_t>& to) const;
  void cut(std::size_t i, std::string_view text,
           const std::function<void(std::string_view)>& use) const;
  void encode_piece(std::string_view piece, std::vector<std::int32_t>& to) const;
  void add_symbols(std::string_view piece, std::vector<std::int32_t>& to) const;
  void merge(std::vector<std::int32_t>& to, std::size_t begin) const;

  BpeRules rules_;
  std::unordered_map<std::uint64_t, Ranked> merges_;              // by left and right
  std::array<std::vector<const BpeRules::Added*>, 256> added_{};  // by first byte, longest first
};

}  // namespace belfry
