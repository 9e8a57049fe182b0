// Bytes and characters of text, and the tokens of tokenizers.
#include <algorithm>
#include <utility>

#include "belfry/framework/base/require.h"
#include "belfry/framework/base/text.h"
#include "belfry/trainers/data/token_stream.h"
#include "belfry/trainers/util/counter_random.h"

namespace belfry {
namespace {

constexpr std::size_t kTextBlock = 64 << 10;
constexpr std::int64_t kMarkEvery = 4096;  // characters
constexpr std::size_t kLongestCharacter = 4;

class ByteTokens final : public TokenStream {
 public:
  ByteTokens(FileSystem& files, std::string path)
      : files_(files),
        path_(std::move(path)),
        size_(static_cast<std::int64_t>(files.open(path_)->size())) {}

  std::int64_t size() const override { return size_; }
  std::string describe() const override { return cat(size_, " bytes of ", path_); }
  const Vocabulary* vocabulary() const override { return &vocabulary_; }
  void read(std::int64_t begin, std::span<std::int32_t> out) const override {
    const auto file = files_.open(path_);
    file->seek(static_cast<std::uint64_t>(begin));
    std::vector<std::byte> bytes(out.size());
    require<IoError>(file->read(bytes) == bytes.size(), path_,
                     " has become shorter since it was opened");
    std::ranges::transform(bytes, out.begin(),
                           [](std::byte byte) { return std::to_integer<std::int32_t>(byte); });
  }

 private:
  FileSystem& files_;
  const std::string path_;
  const std::int64_t size_;
  const ByteVocabulary vocabulary_;
};

// Gives the characters of a file from a byte on, one after another.
class Utf8Reader {
 public:
  Utf8Reader(FileSystem& files, const std::string& path, std::uint64_t offset,
             std::size_t block = kTextBlock)
      : file_(files.open(path)), path_(path), offset_(offset), block_(block) {
    file_->seek(offset);
  }

  // The first byte of the next character.
  std::uint64_t offset() const { return offset_; }
  // False at the end. Throws BadRecord for a byte that is no UTF-8, and skips it.
  bool next(std::uint32_t& code) {
    if (text_.size() < kLongestCharacter) refill();
    if (text_.empty()) return false;
    const Utf8Character found = first_character(text_);
    const std::size_t taken = std::max<std::size_t>(1, found.bytes);
    const auto byte = static_cast<std::uint8_t>(text_[0]);
    text_.remove_prefix(taken);
    offset_ += taken;
    if (found.bytes == 0)
      throw BadRecord(path_, offset_ - 1, cat("the byte 0x", hex(byte, 2), " is no UTF-8"));
    code = found.code;
    return true;
  }

 private:
  void refill() {
    std::string rest(text_);
    rest.resize(rest.size() + block_);
    const std::size_t more =
        file_->read(std::as_writable_bytes(std::span(rest)).subspan(text_.size()));
    rest.resize(text_.size() + more);
    buffer_ = std::move(rest);
    text_ = buffer_;
  }

  std::unique_ptr<ReadableFile> file_;
  const std::string& path_;
  std::uint64_t offset_;
  const std::size_t block_;
  std::string buffer_;
  std::string_view text_;  // the rest of the buffer
};

class CharacterTokens final : public TokenStream {
 public:
  CharacterTokens(FileSystem& files, std::string path, BadRecords& bad)
      : files_(files), path_(std::move(path)), vocabulary_(scan(bad)) {}

  std::int64_t size() const override { return size_; }
  std::string describe() const override {
    return cat(size_, " characters, ", vocabulary_.size(), " different ones, of ", path_);
  }
  const Vocabulary* vocabulary() const override { return &vocabulary_; }
  void read(std::int64_t begin, std::span<std::int32_t> out) const override {
    if (out.empty()) return;  // a text without characters has no mark
    const auto mark = static_cast<std::size_t>(begin / kMarkEvery);
    const auto passed = static_cast<std::size_t>(begin % kMarkEvery);
    Utf8Reader reader(files_, path_, marks_[mark], passed + out.size());
    for (std::size_t i = 0; i < passed + out.size(); ++i) {
      const std::int32_t token = vocabulary_.token(next(reader));
      require<IoError>(token >= 0, path_, " has changed since it was read first");
      if (i >= passed) out[i - passed] = token;
    }
  }

 private:
  CharacterVocabulary scan(BadRecords& bad) {
    std::vector<bool> seen;  // up to the largest code
    Utf8Reader reader(files_, path_, 0);
    for (std::uint64_t begin = 0;; begin = reader.offset()) {
      std::uint32_t code;
      try {
        if (!reader.next(code)) break;
      } catch (const BadRecord& record) {
        bad.note(record);
        continue;
      }
      if (code >= seen.size()) seen.resize(code + 1);
      seen[code] = true;
      if (size_++ % kMarkEvery == 0) marks_.push_back(begin);
    }
    std::vector<std::uint32_t> characters;
    for (std::uint32_t code = 0; code < seen.size(); ++code)
      if (seen[code]) characters.push_back(code);
    return CharacterVocabulary(std::move(characters));
  }

  // Skips bytes that scan() has left out.
  std::uint32_t next(Utf8Reader& reader) const {
    for (;;) {
      try {
        std::uint32_t code = 0;
        require<IoError>(reader.next(code), path_, " has become shorter since it was read first");
        return code;
      } catch (const BadRecord&) {
      }
    }
  }

  FileSystem& files_;
  const std::string path_;
  std::int64_t size_ = 0;
  std::vector<std::uint64_t> marks_;  // the first byte of each kMarkEvery-th character
  const CharacterVocabulary vocabulary_;
};

std::vector<std::int32_t> encoded(std::string_view text, const Vocabulary& vocabulary,
                                  const std::string& what) try {
  return vocabulary.encode(text);
} catch (const InvalidArgument& error) {
  throw IoError(cat(what, ": ", error.what(), "; name a tokenizer that knows all of the text"));
}

class EncodedTokens final : public TokenStream {
 public:
  EncodedTokens(std::string_view text, std::shared_ptr<const Vocabulary> vocabulary,
                const std::string& what)
      : vocabulary_(std::move(vocabulary)),
        tokens_(encoded(text, *vocabulary_, what)),
        description_(cat(tokens_.size(), " tokens, of ", vocabulary_->size(),
                         " different ones, of ", what)) {}

  std::int64_t size() const override { return std::ssize(tokens_); }
  std::string describe() const override { return description_; }
  const Vocabulary* vocabulary() const override { return vocabulary_.get(); }
  void read(std::int64_t begin, std::span<std::int32_t> out) const override {
    std::copy_n(tokens_.begin() + begin, out.size(), out.begin());
  }

 private:
  const std::shared_ptr<const Vocabulary> vocabulary_;
  const std::vector<std::int32_t> tokens_;
  const std::string description_;
};

class GeneratedText final : public TokenStream {
 public:
  explicit GeneratedText(std::int64_t count) {
    constexpr std::string_view kSounds = "abdefgiklmnoprstu";
    constexpr std::uint64_t kWords = 200, kSeed = 0x7e47;
    const auto sound = [&](CounterRandom& random) { return kSounds[random.below(kSounds.size())]; };
    CounterRandom random(kSeed);
    while (std::ssize(text_) < count) {
      const std::uint64_t length = 3 + random.below(6);
      for (std::uint64_t i = 0; i < length; ++i) {
        CounterRandom word(combine_key(kSeed, random.below(kWords)));
        for (std::uint64_t letters = 2 + word.below(5); letters > 0; --letters)
          text_ += sound(word);
        text_ += i + 1 < length ? ' ' : '.';
      }
      text_ += '\n';
    }
    text_.resize(static_cast<std::size_t>(count));
  }

  std::int64_t size() const override { return std::ssize(text_); }
  std::string describe() const override {
    return cat(text_.size(), " bytes of generated text (no data directory given)");
  }
  const Vocabulary* vocabulary() const override { return &vocabulary_; }
  void read(std::int64_t begin, std::span<std::int32_t> out) const override {
    for (std::size_t i = 0; i < out.size(); ++i)
      out[i] =
          vocabulary_.token(static_cast<std::uint8_t>(text_[static_cast<std::size_t>(begin) + i]));
  }

 private:
  static std::vector<std::uint32_t> ascii() {
    std::vector<std::uint32_t> characters{'\n', ' ', '.'};
    for (std::uint32_t letter = 'a'; letter <= 'z'; ++letter) characters.push_back(letter);
    return characters;
  }

  std::string text_;
  const CharacterVocabulary vocabulary_{ascii()};
};

}  // namespace

std::unique_ptr<TokenStream> byte_tokens(FileSystem& files, const std::string& path) {
  return std::make_unique<ByteTokens>(files, path);
}

std::unique_ptr<TokenStream> character_tokens(FileSystem& files, const std::string& path,
                                              BadRecords& bad) {
  return std::make_unique<CharacterTokens>(files, path, bad);
}

std::unique_ptr<TokenStream> encoded_tokens(std::string_view text,
                                            std::shared_ptr<const Vocabulary> vocabulary,
                                            const std::string& what) {
  return std::make_unique<EncodedTokens>(text, std::move(vocabulary), what);
}

std::unique_ptr<TokenStream> generated_text(std::int64_t count) {
  return std::make_unique<GeneratedText>(count);
}

}  // namespace belfry
