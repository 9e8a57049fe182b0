#include "belfry/trainers/data/idx_reader.h"

#include <algorithm>
#include <array>
#include <memory>

#include "belfry/framework/base/error.h"
#include "belfry/framework/base/host_memory.h"
#include "belfry/framework/base/require.h"
#include "belfry/framework/base/text.h"
#include "belfry/trainers/data/byte_input.h"

namespace belfry {
namespace {

constexpr std::size_t kMaxRank = 8;

// The big-endian number at `offset`, which is where `input` stands.
std::uint32_t read_number(ByteInput& input, const std::string& name, std::size_t offset,
                          const std::string& what) {
  std::array<std::byte, 4> bytes;
  const std::size_t got = input.read(bytes);
  require<IoError>(got == bytes.size(), name, ": truncated at byte ", offset + got, input.of_what(),
                   ": expected ", what, " in bytes ", offset, " to ", offset + 3,
                   ", found the end");
  std::uint32_t value = 0;
  for (const std::byte byte : bytes) value = value << 8 | std::to_integer<std::uint32_t>(byte);
  return value;
}

// Reads magic and dimensions, and checks that the values can be in the file.
Shape read_header(ByteInput& input, const std::string& name, std::size_t rank) {
  const auto wanted = static_cast<std::uint32_t>(0x800 | rank);
  const std::uint32_t magic = read_number(input, name, 0, "the magic number");
  require<IoError>(magic == wanted, name, ": wrong magic number at byte 0", input.of_what(),
                   ": expected 0x", hex(wanted, 8), " (IDX, unsigned bytes, rank ", rank,
                   "), found 0x", hex(magic, 8));
  Shape shape(std::vector<std::int64_t>(rank, 0));
  for (std::size_t axis = 0; axis < rank; ++axis)
    shape[axis] = read_number(input, name, 4 + 4 * axis, cat("dimension ", axis));
  for (std::size_t axis = 1; axis < rank; ++axis)
    require<IoError>(shape[axis] > 0, name, ": bytes ", 4 + 4 * axis, " to ", 7 + 4 * axis,
                     input.of_what(), ": expected dimension ", axis, " above 0, found shape ",
                     shape);
  const std::uint64_t header = 4 + 4 * rank;
  const std::uint64_t room = input.most_bytes() - std::min(input.most_bytes(), header);
  std::uint64_t declared = 1;
  for (const std::int64_t dim : shape.dims()) {
    const auto size = static_cast<std::uint64_t>(dim);
    require<IoError>(size == 0 || declared <= room / size, name, ": ", input.too_small(),
                     ": expected values of shape ", shape, " from byte ", header, input.of_what(),
                     ", found room for ", room);
    declared *= size;
  }
  return shape;
}

// "-idx3-ubyte" <-> ".idx3-ubyte"; `path` itself where neither occurs.
std::string other_spelling(std::string path) {
  const std::size_t at = path.rfind("idx");
  if (at == std::string::npos || at == 0) return path;
  char& mark = path[at - 1];
  if (mark == '-' || mark == '.') mark = mark == '-' ? '.' : '-';
  return path;
}

}  // namespace

Tensor parse_idx(std::span<const std::byte> bytes, const std::string& name, std::size_t rank) {
  BytesFile file(bytes);
  return parse_idx(file, name, rank);
}

Shape parse_idx_shape(ReadableFile& file, const std::string& name, std::size_t rank) {
  FileBlocks blocks(file);
  return read_header(*open_input(blocks, name), name, rank);
}

Tensor parse_idx(ReadableFile& file, const std::string& name, std::size_t rank,
                 const std::function<void(const Shape&)>& check) {
  require(rank >= 1 && rank <= kMaxRank, "IDX files have rank 1 to ", kMaxRank, ", not ", rank);
  FileBlocks blocks(file);
  const auto input = open_input(blocks, name);
  const Shape shape = read_header(*input, name, rank);
  if (check) check(shape);
  require<IoError>(shape.elements() <= host_memory(), name, ": its values of shape ", shape,
                   " need more memory than this machine has, ", byte_text(host_memory()));
  Tensor values(shape, DType::kU8);
  const std::size_t header = 4 + 4 * rank;
  const std::size_t got = input->read({values.mutable_raw(), values.bytes()});
  require<IoError>(got == values.bytes(), name, ": truncated at byte ", header + got,
                   input->of_what(), ": expected values of shape ", shape, " from byte ", header,
                   ", found room for ", got);
  // Reading on also makes zlib verify its checksum.
  std::byte extra;
  require<IoError>(input->read({&extra, 1}) == 0, name, ": trailing bytes from byte ", header + got,
                   input->of_what(), ": expected the end after ", got, " values of shape ", shape);
  return values;
}

std::string find_idx_file(FileSystem& files, const std::string& path) {
  const std::string stem = path.ends_with(".gz") ? path.substr(0, path.size() - 3) : path;
  std::vector<std::string> tried = {path};
  for (const std::string& spelling : {stem, other_spelling(stem)})
    for (const char* suffix : {"", ".gz"})
      if (std::ranges::find(tried, spelling + suffix) == tried.end())
        tried.push_back(spelling + suffix);
  for (const std::string& candidate : tried)
    if (files.target_kind(candidate) != FileKind::kNone) return candidate;
  throw NotFound(cat("no such file: ", join(tried, " or ")));
}

}  // namespace belfry
