#include "belfry/trainers/data/text_pattern.h"

#include <string>

#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>

#include "belfry/framework/base/require.h"
#include "belfry/framework/base/text.h"

namespace belfry {
namespace {

// \s and \S as Unicode's property White_Space: PCRE2 counts U+180E among spaces, tokenizers do not.
std::string with_spaces_of_unicode(std::string_view expression) {
  std::string changed;
  for (std::size_t i = 0; i < expression.size(); ++i) {
    const char next = expression[i] == '\\' && i + 1 < expression.size() ? expression[i + 1] : '\0';
    if (next == '\0') {
      changed += expression[i];
      continue;
    }
    ++i;
    changed += next == 's'   ? "\\p{White_Space}"
               : next == 'S' ? "\\P{White_Space}"
                             : std::string{'\\', next};
  }
  return changed;
}

std::string message_of(int error) {
  PCRE2_UCHAR text[256];
  pcre2_get_error_message(error, text, sizeof text);
  return reinterpret_cast<const char*>(text);
}

PCRE2_SPTR as_units(std::string_view text) { return reinterpret_cast<PCRE2_SPTR>(text.data()); }

}  // namespace

struct TextPattern::Compiled {
  ~Compiled() { pcre2_code_free(code); }
  pcre2_code* code = nullptr;
};

TextPattern::TextPattern(std::string_view expression, Form form, Keep keep)
    : compiled_(std::make_unique<Compiled>()), keep_(keep) {
  const bool literal = form == Form::kLiteral;
  const std::string text = literal ? std::string(expression) : with_spaces_of_unicode(expression);
  int error = 0;
  std::size_t place = 0;
  compiled_->code =
      pcre2_compile(as_units(text), text.size(),
                    PCRE2_UTF | (literal ? PCRE2_LITERAL : PCRE2_UCP | PCRE2_NEVER_BACKSLASH_C),
                    &error, &place, nullptr);
  require(compiled_->code != nullptr, "'", shown(expression),
          "' is no regular expression: ", message_of(error), " at '",
          shown(std::string_view(text).substr(place)), "'");
  pcre2_jit_compile(compiled_->code, PCRE2_JIT_COMPLETE);  // without it, matching is slower
}

TextPattern::~TextPattern() = default;
TextPattern::TextPattern(TextPattern&&) noexcept = default;

void TextPattern::cut(std::string_view text,
                      const std::function<void(std::string_view)>& use) const {
  const std::unique_ptr<pcre2_match_data, decltype(&pcre2_match_data_free)> match(
      pcre2_match_data_create_from_pattern(compiled_->code, nullptr), pcre2_match_data_free);
  const auto use_part = [&](std::size_t begin, std::size_t end, Keep unless) {
    if (begin < end && keep_ != unless) use(text.substr(begin, end - begin));
  };
  std::size_t done = 0;
  for (std::size_t from = 0; from < text.size();) {
    const auto match_with = [&](std::uint32_t options) {
      return pcre2_match(compiled_->code, as_units(text), text.size(), from,
                         PCRE2_NO_UTF_CHECK | options, match.get(), nullptr);
    };
    int found = match_with(0);
    // Without compiled code, matching is slower and takes its memory from the heap.
    if (found == PCRE2_ERROR_JIT_STACKLIMIT) found = match_with(PCRE2_NO_JIT);
    if (found == PCRE2_ERROR_NOMATCH) break;
    require<Error>(found > 0, "a pattern of the tokenizer cannot be applied to '",
                   shown(text.substr(from)), "': ", message_of(found));
    const std::size_t* const place = pcre2_get_ovector_pointer(match.get());
    const std::size_t begin = place[0], end = place[1];
    if (begin >= end) {  // an empty match cuts nothing
      for (++from; from < text.size() && (text[from] & 0xC0) == 0x80;) ++from;
      continue;
    }
    use_part(done, begin, Keep::kMatches);
    use_part(begin, end, Keep::kRest);
    done = from = end;
  }
  use_part(done, text.size(), Keep::kMatches);
}

}  // namespace belfry
