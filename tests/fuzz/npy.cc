// Input: a .npy file, or a zip archive with a member x.npy.
#include "belfry/tests/fuzz/target.h"
#include "belfry/trainers/data/byte_input.h"
#include "belfry/trainers/data/npy_array.h"

constexpr std::uint64_t kMostUnpacked = std::uint64_t{1} << 19;

std::size_t belfry::test::largest_allowed(const std::uint8_t*, std::size_t size) {
  return mib_or_twice(size);
}

int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace belfry;
  const std::vector<std::byte> bytes = test::bytes_of({data, size});
  BytesFile file(bytes);
  const auto read_array = [&](std::uint64_t begin, std::uint64_t end) {
    const NpyHeader header = read_npy_header(file, "fuzz", begin, end);
    const std::size_t values =
        static_cast<std::size_t>(header.shape.elements()) * size_of(header.dtype);
    test::check(header.begin + values <= end && end <= size, "values beyond the file");
  };
  test::may_refuse([&] { read_array(0, size); });
  test::may_refuse([&] {
    const auto member = find_zip_member(file, "fuzz", "x.npy");
    if (!member) return;
    test::check(member->begin + member->packed <= size, "a member beyond the file");
    if (!member->is_deflated)
      read_array(member->begin, member->begin + member->packed);
    else
      test::check(unpack_member(file, "fuzz", *member, kMostUnpacked).size() == member->unpacked,
                  "a member of another size");
  });
  return 0;
}
