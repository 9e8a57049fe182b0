// Reads byte-pair tokenizers of other programs.
#pragma once
#include <memory>
#include <string>

#include "belfry/framework/base/file_system.h"
#include "belfry/trainers/data/vocabulary.h"

namespace belfry {

// `path` is a file tokenizer.json of Hugging Face's tokenizers, or a folder that has one, or else
// vocab.json and merges.txt of GPT-2. Takes models BPE of bytes, and of characters with metaspace,
// as those of GPT-2, Llama and Mistral. Encoding adds no token before or after the text. Throws
// OptionMistake naming the option tokenizer if `path` has no such file, and IoError naming file,
// place and member for one that is malformed, or asks for what Belfry lacks.
std::shared_ptr<const Vocabulary> read_tokenizer(const std::string& path,
                                                 FileSystem& files = local_file_system());

}  // namespace belfry
