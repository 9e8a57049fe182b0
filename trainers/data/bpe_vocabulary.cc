#include "belfry/trainers/data/bpe_vocabulary.h"

#include <algorithm>
#include <queue>
#include <utility>

#include "belfry/framework/base/require.h"
#include "belfry/framework/base/text.h"

namespace belfry {
namespace {

std::uint64_t pair_key(std::int32_t left, std::int32_t right) {
  return static_cast<std::uint64_t>(left) << 32 | static_cast<std::uint32_t>(right);
}

std::size_t first_byte(std::string_view text) { return static_cast<std::uint8_t>(text[0]); }

// The bytes of UTF-8 that a text begins with.
std::size_t utf8_size(std::string_view text) {
  std::size_t size = 0;
  while (size < text.size()) {
    const std::size_t next = first_character(text.substr(size)).bytes;
    if (next == 0) break;
    size += next;
  }
  return size;
}

void replace_all(std::string& text, const std::string& from, const std::string& to) {
  std::string changed;
  std::size_t done = 0;
  for (std::size_t at; (at = text.find(from, done)) != text.npos; done = at + from.size())
    changed.append(text, done, at - done).append(to);
  text = changed.append(text, done);
}

}  // namespace

BpeVocabulary::BpeVocabulary(BpeRules rules) : rules_(std::move(rules)) {
  std::int32_t rank = 0;
  for (const BpeRules::Merge& merge : std::exchange(rules_.merges, {}))
    merges_.try_emplace(pair_key(merge.left, merge.right), Ranked{rank++, merge.result});
  for (const BpeRules::Added& added : rules_.added)
    if (!added.text.empty()) added_[first_byte(added.text)].push_back(&added);
  for (auto& of_byte : added_)
    std::ranges::stable_sort(of_byte, std::ranges::greater(),
                             [](const BpeRules::Added* added) { return added->text.size(); });
}

// The longest added token that a text begins with; null if there is none.
const BpeRules::Added* BpeVocabulary::added_at(std::string_view text) const {
  for (const BpeRules::Added* const added : added_[first_byte(text)])
    if (text.starts_with(added->text)) return added;
  return nullptr;
}

std::vector<std::int32_t> BpeVocabulary::encode(std::string_view text) const {
  std::vector<std::int32_t> tokens;
  std::size_t done = 0;
  const auto encode_until = [&](std::size_t end) {
    if (done < end) encode_between(std::string(text.substr(done, end - done)), done == 0, tokens);
  };
  for (std::size_t i = 0; i < text.size();) {
    const BpeRules::Added* const added = added_at(text.substr(i));
    if (!added) {
      ++i;
      continue;
    }
    encode_until(i);
    tokens.push_back(added->token);
    done = i += added->text.size();
  }
  encode_until(text.size());
  return tokens;
}

// Text that holds no added token; `is_first`: the whole text begins with it.
void BpeVocabulary::encode_between(std::string text, bool is_first,
                                   std::vector<std::int32_t>& to) const {
  for (const BpeRules::Change& change : rules_.changes) {
    if (!change.from.empty())
      replace_all(text, change.from, change.to);
    else if ((is_first || !change.at_start) &&
             !(change.unless_there && text.starts_with(change.to)))
      text.insert(0, change.to);
  }
  // Pieces return, and have the same tokens: they are copied from where they came first.
  struct Place {
    std::size_t begin, count;
  };
  std::unordered_map<std::string_view, Place> seen;
  const auto add = [&](std::string_view piece) {
    const auto [known, is_new] = seen.try_emplace(piece, Place{to.size(), 0});
    Place& place = known->second;
    if (is_new) {
      encode_piece(piece, to);
      place.count = to.size() - place.begin;
    } else {
      for (std::size_t i = 0; i < place.count; ++i) to.push_back(to[place.begin + i]);
    }
  };
  std::string_view rest = text;
  while (!rest.empty()) {
    const std::size_t size = utf8_size(rest);
    if (size > 0) cut(0, rest.substr(0, size), add);
    rest.remove_prefix(size);
    if (rest.empty()) break;
    add(rest.substr(0, 1));
    rest.remove_prefix(1);
  }
}

void BpeVocabulary::cut(std::size_t i, std::string_view text,
                        const std::function<void(std::string_view)>& use) const {
  if (i == rules_.cuts.size()) return use(text);
  rules_.cuts[i].cut(text, [&](std::string_view piece) { cut(i + 1, piece, use); });
}

void BpeVocabulary::encode_piece(std::string_view piece, std::vector<std::int32_t>& to) const {
  if (rules_.takes_whole) {
    const auto whole = rules_.symbols.find(std::string(piece));
    if (whole != rules_.symbols.end()) return to.push_back(whole->second);
  }
  const std::size_t begin = to.size();
  add_symbols(piece, to);
  merge(to, begin);
}

void BpeVocabulary::add_symbols(std::string_view piece, std::vector<std::int32_t>& to) const {
  bool was_unknown = false;
  while (!piece.empty()) {
    const std::size_t size =
        rules_.of_bytes ? 1 : std::max<std::size_t>(first_character(piece).bytes, 1);
    const std::string_view character = piece.substr(0, size);
    const auto symbol =
        rules_.of_bytes ? rules_.symbols.end() : rules_.symbols.find(std::string(character));
    const bool is_known = std::ranges::all_of(
        character, [&](char byte) { return rules_.bytes[static_cast<std::uint8_t>(byte)] >= 0; });
    const bool is_unknown = symbol == rules_.symbols.end() && !is_known;
    if (symbol != rules_.symbols.end())
      to.push_back(symbol->second);
    else if (is_known)
      for (const char byte : character) to.push_back(rules_.bytes[static_cast<std::uint8_t>(byte)]);
    else if (require(rules_.unknown >= 0, "no token stands for '", shown(character), "'");
             !was_unknown || !rules_.fuses_unknown)
      to.push_back(rules_.unknown);
    was_unknown = is_unknown;
    piece.remove_prefix(size);
  }
}

// Merges symbols from `begin` on: always the pair that comes first among the rules, and of equal
// ones the leftmost.
void BpeVocabulary::merge(std::vector<std::int32_t>& to, std::size_t begin) const {
  const std::span<std::int32_t> symbols = std::span(to).subspan(begin);
  const std::size_t count = symbols.size();
  if (count < 2) return;
  constexpr std::int32_t kGone = -1;  // merged into the symbol before
  std::vector<std::size_t> before(count), after(count);
  using Pair = std::pair<std::int32_t, std::size_t>;  // rank, and the place of the left symbol
  std::priority_queue<Pair, std::vector<Pair>, std::greater<>> pairs;
  const auto rule_at = [&](std::size_t left) -> const Ranked* {
    if (symbols[left] == kGone || after[left] == count) return nullptr;
    const auto found = merges_.find(pair_key(symbols[left], symbols[after[left]]));
    return found == merges_.end() ? nullptr : &found->second;
  };
  const auto note = [&](std::size_t left) {
    if (const Ranked* const rule = rule_at(left)) pairs.emplace(rule->rank, left);
  };
  for (std::size_t i = 0; i < count; ++i) {
    before[i] = i - 1;  // of the first: none
    after[i] = i + 1;
  }
  for (std::size_t i = 0; i < count; ++i) note(i);
  while (!pairs.empty()) {
    const auto [rank, left] = pairs.top();
    pairs.pop();
    const Ranked* const rule = rule_at(left);
    if (!rule || rule->rank != rank) continue;  // a symbol has changed since
    symbols[left] = rule->result;
    symbols[after[left]] = kGone;
    after[left] = after[after[left]];
    if (after[left] < count) before[after[left]] = left;
    if (left > 0) note(before[left]);
    note(left);
  }
  to.resize(to.size() - std::ranges::remove(symbols, kGone).size());
}

std::optional<std::int32_t> BpeVocabulary::end_of_text() const {
  for (const BpeRules::Added& added : rules_.added)
    if (added.text == kEndOfText) return added.token;
  return {};
}

std::string BpeVocabulary::text_of(std::int32_t token) const {
  require(token >= 0 && token < size(), "token ", token, " of a vocabulary of ", size());
  return rules_.tokens[static_cast<std::size_t>(token)];
}

}  // namespace belfry
