// A transformer and the text that it reads and writes, as the flags of programs describe them.
#pragma once
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "belfry/trainers/data/text_data.h"
#include "belfry/trainers/models/gpt.h"
#include "belfry/trainers/options/own_option.h"

namespace belfry::models {

// What the program gpt trains, and what `belfry generate` continues text with.
class GptText {
 public:
  // Flags for all members below. They must outlive the run.
  std::vector<OwnOption> flags();
  // The size, whose vocabulary has as many tokens as there are if no flag says how many. This and
  // the functions below throw as read_tokenizer() does, and OptionMistake for a tokenizer beside
  // tokens of another kind.
  GptSize sized() const;
  // Windows of the text.
  data::TextOptions windows(std::int64_t per_epoch) const;
  // What tokens stand for; null for those of llm.c without a tokenizer. Characters are those of the
  // data.
  std::shared_ptr<const Vocabulary> vocabulary(const RunDirs& dirs) const;

  // As --preset=char has it. A vocabulary of 0 has as many tokens as their kind.
  GptSize size = {.layers = 4,
                  .heads = 4,
                  .width = 128,
                  .sequence_length = 64,
                  .vocabulary = 0,
                  .tie_embeddings = true,
                  .gelu = "exact"};
  std::string preset;
  std::string tokens;     // "": those of the tokenizer, or else characters
  std::string tokenizer;  // its path; "" for none

 private:
  std::string kind() const;
  std::shared_ptr<const Vocabulary> words() const;

  mutable std::shared_ptr<const Vocabulary> words_;  // of the tokenizer, once it is read
};

}  // namespace belfry::models
