// Text whose next token a model predicts.
#pragma once
#include <cstdint>
#include <memory>
#include <string>

#include "belfry/trainers/data/dataset.h"
#include "belfry/trainers/data/token_stream.h"

namespace belfry {

// Windows of a row of tokens, from `begin` to `end`.
struct TokenWindows {
  std::shared_ptr<const TokenStream> tokens;
  std::int64_t begin = 0, end = 0;
  std::int64_t length = 64;  // tokens of a window
  // Samples of an epoch; 0: all windows without overlap, as for tests.
  std::int64_t per_epoch = 0;
  std::shared_ptr<BadRecords> bad = {};  // counts bad records; null: none may be left out
};

// Fields: "tokens" and "label" i32 [length], the second one token further on. Samples are windows
// without overlap, one after another. Training takes each window at a random place, a function of
// seed, epoch and sample. A window with a bad record is replaced by the next one. Only the
// requested windows are read. Throws InvalidArgument for a row shorter than a window.
std::unique_ptr<Dataset> token_windows(TokenWindows windows);

namespace data {

struct TextOptions {
  // "characters", "bytes", or tokens of the "tokenizer", of the file input.txt: its first nine
  // tenths train, the rest tests. Or "llmc": token files of llm.c, *train*.bin and *val*.bin.
  std::string tokens = "characters";
  // Makes these tokens, or says what those of llm.c stand for (tokenizer_file.h).
  std::shared_ptr<const Vocabulary> tokenizer = {};
  std::int64_t length = 64;
  std::int64_t per_epoch = 0;   // samples of a training epoch: TokenWindows::per_epoch
  std::int64_t vocabulary = 0;  // different tokens that the model knows
};

// A source of such windows for recipes, from the files in RunDirs::data_dir, or of generated text
// without it. Files are read when samples are first needed, which throws NotFoundError or IoError
// naming the file, and OptionMistake for text with more different tokens than `vocabulary`.
// Dataset::check() does so, too, if the files are there. Training and test data of one source read
// input.txt only once, as long as either exists; its bad records count as the training data's.
DatasetFactory text(TextOptions options);

}  // namespace data
}  // namespace belfry
