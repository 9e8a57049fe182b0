#include "belfry/trainers/models/gpt_text.h"

#include "belfry/trainers/data/tokenizer_file.h"
#include "belfry/trainers/util/option_error.h"

namespace belfry::models {

std::vector<OwnOption> GptText::flags() {
  std::vector<OwnOption> flags = gpt_flags(size, preset);
  for (OwnOption& flag : flags)
    if (flag.name == "vocabulary")
      flag.text += "; 0: 65 characters, 256 bytes, 50257 of llm.c, or all of the tokenizer";
  flags.insert(flags.end(),
               {{.name = "tokens",
                 .variable = &tokens,
                 .text = "of input.txt, or of token files of llm.c; without this flag, those of "
                         "`tokenizer`, or else characters",
                 .choices = {"characters", "bytes", "llmc"}},
                {.name = "tokenizer",
                 .variable = &tokenizer,
                 .text = "byte-pair tokens: tokenizer.json of Hugging Face, or a folder with it or "
                         "with vocab.json and merges.txt of GPT-2; beside tokens of llm.c, what "
                         "these stand for",
                 .unit = "PATH"}});
  return flags;
}

std::string GptText::kind() const {
  if (tokens.empty()) return tokenizer.empty() ? "characters" : "tokenizer";
  require_option<OptionMistake>(tokenizer.empty() || tokens == "llmc", "tokenizer", "=", tokenizer,
                                " has no use beside ", option_name("tokens"), "=", tokens,
                                "; leave one of them out");
  return tokens;
}

std::shared_ptr<const Vocabulary> GptText::words() const {
  if (!words_ && !tokenizer.empty()) words_ = read_tokenizer(tokenizer);
  return words_;
}

GptSize GptText::sized() const {
  GptSize sized = size;
  const std::string kind = this->kind();
  if (sized.vocabulary == 0)
    sized.vocabulary = words()                ? words()->size()
                       : kind == "characters" ? 65
                       : kind == "bytes"      ? 256
                                              : 50257;
  return sized;
}

data::TextOptions GptText::windows(std::int64_t per_epoch) const {
  const GptSize all = sized();
  return {.tokens = kind(),
          .tokenizer = words(),
          .length = all.sequence_length,
          .per_epoch = per_epoch,
          .vocabulary = all.vocabulary};
}

std::shared_ptr<const Vocabulary> GptText::vocabulary(const RunDirs& dirs) const {
  if (const auto words = this->words()) return words;
  const std::string kind = this->kind();
  if (kind == "llmc") return nullptr;
  if (kind == "bytes") return std::make_shared<ByteVocabulary>();
  const std::shared_ptr<Dataset> text = data::text(windows(0))(dirs, true);
  return {text, text->vocabulary()};
}

}  // namespace belfry::models
