#include "belfry/trainers/data/tokenizer_file.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "belfry/framework/base/json.h"
#include "belfry/framework/base/require.h"
#include "belfry/framework/base/text.h"
#include "belfry/trainers/data/bpe_vocabulary.h"
#include "belfry/trainers/util/option_error.h"

namespace belfry {
namespace {

constexpr std::uint64_t kMostTokenizerBytes = std::uint64_t{32} << 20;  // of Llama 3: 17 MB
constexpr std::int64_t kMostTokens = 1114112;  // what the option vocabulary takes
// The pattern of GPT-2: endings, words, numbers, other characters, and spaces.
constexpr std::string_view kGpt2Pattern =
    R"('s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+)";

// How files write bytes: those that are printable in Latin-1 as their characters, all others as
// characters from U+0100 on.
std::array<std::uint32_t, 256> characters_of_bytes() {
  std::array<std::uint32_t, 256> characters{};
  std::uint32_t next = 0x100;
  for (std::uint32_t byte = 0; byte < 256; ++byte) {
    const bool is_printable = (byte > 0x20 && byte < 0x7F) || (byte > 0xA0 && byte != 0xAD);
    characters[byte] = is_printable ? byte : next++;
  }
  return characters;
}

// The bytes that characters of a file stand for; none if one stands for no byte.
std::optional<std::string> bytes_of_characters(std::string_view text) {
  static const auto bytes = [] {
    std::unordered_map<std::uint32_t, char> by_character;
    const auto characters = characters_of_bytes();
    for (std::size_t i = 0; i < 256; ++i) by_character[characters[i]] = static_cast<char>(i);
    return by_character;
  }();
  std::string of_text;
  while (!text.empty()) {
    const Utf8Character next = first_character(text);
    const auto byte = bytes.find(next.code);
    if (next.bytes == 0 || byte == bytes.end()) return std::nullopt;
    of_text += byte->second;
    text.remove_prefix(next.bytes);
  }
  return of_text;
}

// The byte of "<0x0A>", which stands for a part of a character.
std::optional<std::uint8_t> byte_of_fallback(std::string_view text) {
  constexpr std::string_view kDigits = "0123456789ABCDEF";
  if (text.size() != 6 || !text.starts_with("<0x") || text[5] != '>') return std::nullopt;
  const std::size_t high = kDigits.find(text[3]), low = kDigits.find(text[4]);
  if (high == kDigits.npos || low == kDigits.npos) return std::nullopt;
  return static_cast<std::uint8_t>(16 * high + low);
}

std::string text_in(FileSystem& files, const std::string& path) {
  const std::vector<std::byte> bytes = files.read(path, kMostTokenizerBytes);
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

// What read(text of the file) returns. Errors about the content name the file.
template <class Read>
void read_file(FileSystem& files, const std::string& path, const Read& read) {
  try {
    read(text_in(files, path));
  } catch (const InvalidArgument& error) {
    throw IoError(cat(path, ": ", error.what()));
  }
}

template <class... Parts>
[[noreturn]] void refuse_here(const JsonValue& value, const Parts&... parts) {
  throw InvalidArgument(cat(value.where(), parts...));
}

template <class... Parts>
void require_here(bool holds, const JsonValue& value, const Parts&... parts) {
  if (!holds) refuse_here(value, parts...);
}

// A member that may be missing or null.
const JsonValue* member_or_null(const JsonValue& object, std::string_view name) {
  const JsonValue* const value = object.find(name);
  return value && value->kind() != JsonValue::Kind::kNull ? value : nullptr;
}

bool is_set(const JsonValue& object, std::string_view name, bool otherwise = false) {
  const JsonValue* const value = member_or_null(object, name);
  if (!value) return otherwise;
  require_here(value->kind() == JsonValue::Kind::kBool, *value, "'", name,
               "' is true or false, not ", shown(value->str()));
  return value->str() == "true";
}

std::string text_member(const JsonValue& object, std::string_view name,
                        std::string_view otherwise = "") {
  const JsonValue* const value = member_or_null(object, name);
  return value ? value->text() : std::string(otherwise);
}

// Reads the parts of a tokenizer into rules.
class TokenizerReader {
 public:
  void read_json(const JsonValue& file);
  void read_vocab(const JsonValue& vocab);
  void read_merges(std::string_view text);
  void add_gpt2();
  BpeRules finish(std::vector<std::string> files);

 private:
  using Step = std::pair<const JsonValue*, std::string>;  // and its type

  static std::vector<Step> steps(const JsonValue& file, std::string_view part,
                                 std::string_view list);
  void read_model(const JsonValue& model);
  void read_normalizer(const JsonValue& file);
  void read_pre_tokenizer(const JsonValue& file);
  void read_metaspace(const JsonValue& step);
  void read_split(const JsonValue& step);
  void read_decoder(const JsonValue& file);
  void read_added(const JsonValue& list);
  std::int32_t token(const JsonValue& id) const;
  void set_token(std::int32_t token, std::string text);
  void add_merge(std::string_view left, std::string_view right, const std::string& where);
  std::string decoded(const std::string& text) const;

  BpeRules rules_;
  bool has_fallback_ = false;
  std::string space_;  // what stands for a space in tokens; "": a space
  std::unordered_map<std::string, std::int32_t> ids_;  // by their texts in the file
};

// The steps of a part: of "pre_tokenizer", for example. A sequence has them in the member `list`.
std::vector<TokenizerReader::Step> TokenizerReader::steps(const JsonValue& file,
                                                          std::string_view part,
                                                          std::string_view list) {
  const JsonValue* const value = member_or_null(file, part);
  if (!value) return {};
  std::vector<Step> all;
  const auto add = [&](const auto& self, const JsonValue& step) -> void {
    const std::string& type = step.at("type").text();
    if (type != "Sequence")
      all.emplace_back(&step, type);
    else
      for (const JsonValue& next : step.at(list).items()) self(self, next);
  };
  add(add, *value);
  return all;
}

void TokenizerReader::read_json(const JsonValue& file) {
  read_pre_tokenizer(file);
  read_normalizer(file);
  read_decoder(file);
  read_model(file.at("model"));
  if (const JsonValue* const added = member_or_null(file, "added_tokens")) read_added(*added);
}

void TokenizerReader::read_pre_tokenizer(const JsonValue& file) {
  for (const auto& [step, type] : steps(file, "pre_tokenizer", "pretokenizers")) {
    if (type == "ByteLevel") {
      rules_.of_bytes = true;
      if (is_set(*step, "add_prefix_space", true)) {
        require_here(rules_.cuts.empty(), *step,
                     "'add_prefix_space' is supported only in the first pre-tokenizer");
        rules_.changes.push_back({.from = "", .to = " ", .unless_there = true});
      }
      if (is_set(*step, "use_regex", true))
        rules_.cuts.emplace_back(kGpt2Pattern, TextPattern::Form::kExpression,
                                 TextPattern::Keep::kAll);
    } else if (type == "Split") {
      read_split(*step);
    } else if (type == "Digits") {
      rules_.cuts.emplace_back(is_set(*step, "individual_digits") ? "\\p{N}" : "\\p{N}+",
                               TextPattern::Form::kExpression, TextPattern::Keep::kAll);
    } else if (type == "Metaspace") {
      read_metaspace(*step);
    } else {
      refuse_here(*step, "the pre-tokenizer '", shown(type),
                  "' is none of ByteLevel, Split, Digits, Metaspace and Sequence");
    }
  }
}

void TokenizerReader::read_metaspace(const JsonValue& step) {
  space_ = text_member(step, "replacement", "▁");
  require_here(rules_.cuts.empty() && !space_.empty(), step,
               "Metaspace is supported only as the first pre-tokenizer, with a 'replacement'");
  rules_.changes.push_back({.from = " ", .to = space_});
  // Older files have "add_prefix_space" instead.
  const std::string scheme = text_member(
      step, "prepend_scheme", is_set(step, "add_prefix_space", true) ? "always" : "never");
  require_here(scheme == "always" || scheme == "first" || scheme == "never", step,
               "'prepend_scheme' is always, first or never, not ", shown(scheme));
  if (scheme != "never")
    rules_.changes.push_back(
        {.from = "", .to = space_, .unless_there = true, .at_start = scheme == "first"});
  if (!is_set(step, "split", true)) return;
  const std::string quoted = cat("\\Q", space_, "\\E");
  rules_.cuts.emplace_back(cat("(?s)(?:", quoted, ")?(?:(?!", quoted, ").)++|", quoted),
                           TextPattern::Form::kExpression, TextPattern::Keep::kAll);
}

void TokenizerReader::read_split(const JsonValue& step) {
  const JsonValue& pattern = step.at("pattern");
  const JsonValue* const expression = member_or_null(pattern, "Regex");
  const std::string& behavior = step.at("behavior").text();
  require_here(behavior == "Isolated" || behavior == "Removed", step, "the behavior '",
               shown(behavior), "' of Split is neither Isolated nor Removed");
  const TextPattern::Keep keep = behavior == "Isolated"   ? TextPattern::Keep::kAll
                                 : is_set(step, "invert") ? TextPattern::Keep::kMatches
                                                          : TextPattern::Keep::kRest;
  const std::string& text = expression ? expression->text() : pattern.at("String").text();
  try {
    rules_.cuts.emplace_back(
        text, expression ? TextPattern::Form::kExpression : TextPattern::Form::kLiteral, keep);
  } catch (const InvalidArgument& error) {
    refuse_here(step, error.what());
  }
}

void TokenizerReader::read_normalizer(const JsonValue& file) {
  std::vector<BpeRules::Change> first;
  for (const auto& [step, type] : steps(file, "normalizer", "normalizers")) {
    if (type == "Prepend") {
      first.push_back({.from = "", .to = step->at("prepend").text()});
    } else if (type == "Replace") {
      const std::string& from = step->at("pattern").at("String").text();
      require_here(!from.empty(), *step, "Replace needs a 'pattern' that is not empty");
      first.push_back({.from = from, .to = step->at("content").text()});
      if (from == " ") space_ = first.back().to;
    } else {
      refuse_here(
          *step, "the normalizer '", shown(type),
          "' is none of Prepend, Replace and Sequence; text that it changes would get other "
          "tokens");
    }
  }
  rules_.changes.insert(rules_.changes.begin(), first.begin(), first.end());
}

void TokenizerReader::read_decoder(const JsonValue& file) {
  for (const auto& [step, type] : steps(file, "decoder", "decoders")) {
    if (type == "Strip" || type == "Metaspace") {
      const bool adds = std::ranges::any_of(
          rules_.changes, [](const BpeRules::Change& change) { return change.from.empty(); });
      rules_.drops_space = type == "Strip" || adds;
    }
    const std::string_view known[] = {"ByteLevel", "ByteFallback", "Fuse",
                                      "Metaspace", "Replace",      "Strip"};
    require_here(std::ranges::find(known, type) != std::end(known), *step, "the decoder '",
                 shown(type), "' is none of ", join(known), " and Sequence");
  }
}

void TokenizerReader::read_model(const JsonValue& model) {
  const std::string type = text_member(model, "type", "BPE");
  require_here(type == "BPE", model, "the model is of type '", shown(type),
               "'; only byte-pair encoding, BPE, is supported");
  for (const char* const name : {"continuing_subword_prefix", "end_of_word_suffix"})
    require_here(text_member(model, name).empty(), model, "'", name, "' is not supported");
  const JsonValue* const dropout = member_or_null(model, "dropout");
  require_here(!dropout || dropout->number() == 0, model, "'dropout' is not supported");
  has_fallback_ = is_set(model, "byte_fallback");
  rules_.takes_whole = is_set(model, "ignore_merges");
  rules_.fuses_unknown = is_set(model, "fuse_unk");
  read_vocab(model.at("vocab"));
  if (const std::string unknown = text_member(model, "unk_token"); !unknown.empty()) {
    const auto found = ids_.find(unknown);
    require_here(found != ids_.end(), model, "the 'unk_token' '", shown(unknown),
                 "' is not in 'vocab'");
    rules_.unknown = found->second;
  }
  for (const JsonValue& merge : model.at("merges").items()) {
    if (merge.kind() == JsonValue::Kind::kArray) {
      require_here(merge.items().size() == 2, merge, "a merge has two tokens");
      add_merge(merge.items().front().text(), merge.items().back().text(), merge.where());
    } else {
      const std::string_view text = merge.text();
      const std::size_t space = text.find(' ');
      require_here(space != text.npos, merge, "a merge is two tokens with a space between them");
      add_merge(text.substr(0, space), text.substr(space + 1), merge.where());
    }
  }
}

std::int32_t TokenizerReader::token(const JsonValue& id) const {
  const std::int64_t number = id.integer();
  require_here(number >= 0 && number < kMostTokens, id, "a token is a number from 0 to ",
               kMostTokens - 1, ", not ", number);
  return static_cast<std::int32_t>(number);
}

void TokenizerReader::read_vocab(const JsonValue& vocab) {
  for (const auto& [text, id] : vocab.members()) {
    const std::int32_t number = token(id);
    ids_[text] = number;
    set_token(number, decoded(text));
  }
}

void TokenizerReader::set_token(std::int32_t token, std::string text) {
  const auto place = static_cast<std::size_t>(token);
  if (place >= rules_.tokens.size()) rules_.tokens.resize(place + 1);
  rules_.tokens[place] = std::move(text);
}

// The text that a token of the file stands for.
std::string TokenizerReader::decoded(const std::string& text) const {
  if (rules_.of_bytes) return bytes_of_characters(text).value_or(text);
  if (const auto byte = byte_of_fallback(text); byte && has_fallback_)
    return std::string(1, static_cast<char>(*byte));
  std::string spaced;
  for (std::size_t i = 0; i < text.size();) {
    const bool is_space = !space_.empty() && text.compare(i, space_.size(), space_) == 0;
    spaced += is_space ? ' ' : text[i];
    i += is_space ? space_.size() : 1;
  }
  return spaced;
}

void TokenizerReader::add_merge(std::string_view left, std::string_view right,
                                const std::string& where) {
  const auto token_of = [&](const std::string& text) {
    const auto found = ids_.find(text);
    require(found != ids_.end(), where, "the merge of '", shown(left), "' and '", shown(right),
            "' needs '", shown(text), "', which is no token of the vocabulary");
    return found->second;
  };
  rules_.merges.push_back({.left = token_of(std::string(left)),
                           .right = token_of(std::string(right)),
                           .result = token_of(cat(left, right))});
}

void TokenizerReader::read_added(const JsonValue& list) {
  for (const JsonValue& added : list.items()) {
    const std::string& text = added.at("content").text();
    for (const char* const name : {"single_word", "lstrip", "rstrip"})
      require_here(!is_set(added, name), added, "'", name, "' of the added token '", shown(text),
                   "' is not supported");
    const std::int32_t number = token(added.at("id"));
    rules_.added.push_back({.text = text, .token = number});
    const auto place = static_cast<std::size_t>(number);
    const bool is_known = place < rules_.tokens.size() && !rules_.tokens[place].empty();
    if (!is_known) set_token(number, text);
  }
}

void TokenizerReader::read_merges(std::string_view text) {
  std::size_t line = 0;
  for (std::string_view merge : split(text, '\n')) {
    ++line;
    if (merge.ends_with('\r')) merge.remove_suffix(1);
    if (merge.empty() || merge.starts_with("#version")) continue;
    const std::size_t space = merge.find(' ');
    const std::string where = cat("line ", line, ": ");
    require(space != merge.npos, where, "expected two tokens with a space between them, found '",
            shown(merge), "'");
    add_merge(merge.substr(0, space), merge.substr(space + 1), where);
  }
}

// What the files of GPT-2 do not say.
void TokenizerReader::add_gpt2() {
  rules_.of_bytes = true;
  rules_.cuts.emplace_back(kGpt2Pattern, TextPattern::Form::kExpression, TextPattern::Keep::kAll);
}

BpeRules TokenizerReader::finish(std::vector<std::string> files) {
  rules_.files = std::move(files);
  rules_.bytes.fill(-1);
  for (const auto& [text, id] : ids_) {
    if (rules_.of_bytes) {
      const std::string bytes = bytes_of_characters(text).value_or("");
      if (bytes.size() == 1) rules_.bytes[static_cast<std::uint8_t>(bytes[0])] = id;
      if (rules_.takes_whole && !bytes.empty()) rules_.symbols.emplace(bytes, id);
    } else if (const auto byte = byte_of_fallback(text); byte && has_fallback_) {
      rules_.bytes[*byte] = id;
    }
  }
  if (!rules_.of_bytes) rules_.symbols = std::move(ids_);
  return std::move(rules_);
}

BpeRules read_rules(FileSystem& files, const std::string& path) {
  TokenizerReader reader;
  if (files.target_kind(path) == FileKind::kFile) {
    read_file(files, path,
              [&](const std::string& text) { reader.read_json(JsonValue::parse(text)); });
    return reader.finish({path});
  }
  const std::string whole = cat(path, "/tokenizer.json"), vocab = cat(path, "/vocab.json"),
                    merges = cat(path, "/merges.txt");
  if (files.target_kind(whole) == FileKind::kFile) return read_rules(files, whole);
  for (const std::string& file : {vocab, merges})
    require_option<OptionMistake>(
        files.target_kind(file) == FileKind::kFile, "tokenizer", "=", shown(path), ": there is no ",
        file == vocab ? cat(whole, " and no ", vocab) : merges,
        "; name a file tokenizer.json, or a folder with it or with vocab.json and merges.txt");
  reader.add_gpt2();
  read_file(files, vocab,
            [&](const std::string& text) { reader.read_vocab(JsonValue::parse(text)); });
  read_file(files, merges, [&](const std::string& text) { reader.read_merges(text); });
  BpeRules rules = reader.finish({vocab, merges});
  const auto end = std::ranges::find(rules.tokens, kEndOfText);
  if (end != rules.tokens.end())
    rules.added.push_back({.text = std::string(kEndOfText),
                           .token = static_cast<std::int32_t>(end - rules.tokens.begin())});
  return rules;
}

}  // namespace

std::shared_ptr<const Vocabulary> read_tokenizer(const std::string& path, FileSystem& files) {
  return std::make_shared<BpeVocabulary>(read_rules(files, path));
}

}  // namespace belfry
