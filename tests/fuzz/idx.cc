// Input: the rank that the caller expects, one byte, and an IDX file, gzipped or not.
#include <array>

#include <zlib.h>

#include "belfry/tests/fuzz/target.h"
#include "belfry/trainers/data/byte_input.h"
#include "belfry/trainers/data/idx_reader.h"

namespace {

// The size that the header of a gzipped file declares, at most what fits; 0 if there is none.
std::uint64_t declared_size(std::span<const std::uint8_t> file, std::size_t rank) {
  std::array<std::uint8_t, 20> header;
  z_stream stream = {};
  if (inflateInit2(&stream, 16 + MAX_WBITS) != Z_OK) return 0;
  stream.next_in = const_cast<std::uint8_t*>(file.data());
  stream.avail_in = static_cast<uInt>(file.size());
  stream.next_out = header.data();
  stream.avail_out = static_cast<uInt>(4 + 4 * rank);
  inflate(&stream, Z_SYNC_FLUSH);
  const bool whole = stream.avail_out == 0;
  inflateEnd(&stream);
  if (!whole) return 0;
  std::uint64_t size = 1;
  for (std::size_t axis = 1; axis <= rank; ++axis) {
    std::uint64_t dim = 0;
    for (std::size_t i = 4 * axis; i < 4 * axis + 4; ++i) dim = dim << 8 | header[i];
    if (dim != 0 && size > 1032 * file.size() / dim) return 1032 * file.size();
    size *= dim;
  }
  return size;
}

}  // namespace

std::size_t belfry::test::largest_allowed(const std::uint8_t* data, std::size_t size) {
  if (size < 2 || data[1] != 0x1F) return mib_or_twice(size);
  return std::max(mib_or_twice(size), declared_size({data + 1, size - 1}, data[0] % 4 + 1));
}

int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace belfry;
  if (size == 0) return 0;
  const std::vector<std::byte> file = test::bytes_of({data + 1, size - 1});
  test::may_refuse([&] {
    const std::size_t rank = data[0] % 4 + 1;
    const Tensor values = parse_idx(file, "fuzz", rank);
    test::check(values.dtype() == DType::kU8 && values.shape().rank() == rank, "wrong type");
    const bool gzip = !file.empty() && file[0] == std::byte{0x1F};
    test::check(gzip || values.bytes() + 4 + 4 * rank == file.size(), "wrong size");
  });
  return 0;
}
