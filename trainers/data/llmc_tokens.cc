// Token files of llm.c.
#include <algorithm>
#include <array>
#include <bit>
#include <utility>

#include "belfry/framework/base/option_name.h"
#include "belfry/framework/base/require.h"
#include "belfry/framework/base/text.h"
#include "belfry/trainers/data/token_stream.h"

namespace belfry {
namespace {

static_assert(std::endian::native == std::endian::little, "token files are little-endian");

constexpr std::size_t kHeaderWords = 256;
constexpr std::uint64_t kHeaderBytes = kHeaderWords * sizeof(std::int32_t);
constexpr std::int32_t kMagic = 20240520, kVersion = 1;
constexpr std::uint64_t kTokenBytes = sizeof(std::uint16_t);
// Throws IoError about the header of a file.
template <class... Parts>
void require_header(bool condition, const Parts&... parts) {
  if (!condition)
    throw IoError(about_option(
        "data_dir", parts...,
        "; make the file anew by the scripts of llm.c (dev/data), for GPT-2, or name another "
        "folder (",
        the_option("data_dir"), ")"));
}

// The number of tokens in a file, by its header.
std::int64_t read_llmc_header(ReadableFile& file, const std::string& name) {
  std::array<std::int32_t, kHeaderWords> header;
  const std::size_t got = file.read(std::as_writable_bytes(std::span(header)));
  require_header(got == kHeaderBytes, name, ": truncated at byte ", got, ": expected a header of ",
                 kHeaderBytes, " bytes");
  require_header(header[0] == kMagic, name, ": byte 0: expected ", kMagic,
                 ", with which token files of llm.c begin, found ", header[0]);
  require_header(header[1] == kVersion, name, ": byte 4: expected version ", kVersion,
                 ", of tokens of 16 bits, found ", header[1]);
  require_header(header[2] >= 0, name, ": byte 8: expected a number of tokens, found ", header[2]);
  const std::uint64_t room = file.size() - std::min(file.size(), kHeaderBytes);
  require_header(static_cast<std::uint64_t>(header[2]) * kTokenBytes == room, name,
                 ": expected the ", header[2], " tokens that the header says, found ", room,
                 " bytes after it");
  return header[2];
}

class LlmcTokens final : public TokenStream {
 public:
  LlmcTokens(FileSystem& files, std::vector<std::string> paths, std::int64_t most,
             std::shared_ptr<const Vocabulary> vocabulary)
      : files_(files), most_(most), vocabulary_(std::move(vocabulary)) {
    for (std::string& path : paths) {
      const std::int64_t tokens = read_llmc_header(*files.open(path), path);
      parts_.push_back({std::move(path), size_, tokens});
      size_ += tokens;
    }
  }

  std::int64_t size() const override { return size_; }
  std::string describe() const override {
    return parts_.size() == 1 ? cat(size_, " tokens of ", parts_[0].path)
                              : cat(size_, " tokens of ", parts_[0].path, " and ",
                                    parts_.size() - 1, " files more");
  }
  const Vocabulary* vocabulary() const override { return vocabulary_.get(); }
  void read(std::int64_t begin, std::span<std::int32_t> out) const override {
    auto part = std::ranges::upper_bound(parts_, begin, {}, &Part::begin) - 1;
    while (!out.empty()) {
      require(part != parts_.end(), "tokens beyond the ", size_, " that there are");
      const std::int64_t left = part->begin + part->tokens - begin;
      const auto count = static_cast<std::size_t>(std::min(left, std::ssize(out)));
      read_part(*part, begin - part->begin, out.first(count));
      out = out.subspan(count);
      begin += static_cast<std::int64_t>(count);
      ++part;
    }
  }

 private:
  struct Part {
    std::string path;
    std::int64_t begin, tokens;
  };

  void read_part(const Part& part, std::int64_t begin, std::span<std::int32_t> out) const {
    if (out.empty()) return;
    const std::uint64_t offset = kHeaderBytes + static_cast<std::uint64_t>(begin) * kTokenBytes;
    const auto file = files_.open(part.path);
    file->seek(offset);
    std::vector<std::uint16_t> tokens(out.size());
    const auto bytes = std::as_writable_bytes(std::span(tokens));
    require<IoError>(file->read(bytes) == bytes.size(), part.path,
                     " has become shorter since it was opened");
    for (std::size_t i = 0; i < out.size(); ++i) {
      if (tokens[i] >= most_)
        throw BadRecord(part.path, offset + i * kTokenBytes,
                        cat("expected a token below ", most_, ", found ", tokens[i],
                            ", which the model does not know (", the_option("vocabulary"), ")"));
      out[i] = tokens[i];
    }
  }

  FileSystem& files_;
  const std::int64_t most_;
  const std::shared_ptr<const Vocabulary> vocabulary_;
  std::vector<Part> parts_;
  std::int64_t size_ = 0;
};

}  // namespace

std::unique_ptr<TokenStream> llmc_tokens(FileSystem& files, std::vector<std::string> paths,
                                         std::int64_t most,
                                         std::shared_ptr<const Vocabulary> vocabulary) {
  return std::make_unique<LlmcTokens>(files, std::move(paths), most, std::move(vocabulary));
}

}  // namespace belfry
