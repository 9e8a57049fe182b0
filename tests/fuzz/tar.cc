// Input: a tar file.
#include "belfry/tests/fuzz/target.h"
#include "belfry/trainers/data/tar_members.h"

namespace {

class InputBytes final : public belfry::ForwardBytes {
 public:
  explicit InputBytes(std::span<const std::byte> bytes) : bytes_(bytes) {}
  std::size_t read(std::span<std::byte> out) override {
    const std::size_t count = std::min(out.size(), bytes_.size());
    std::ranges::copy(bytes_.first(count), out.begin());
    bytes_ = bytes_.subspan(count);
    return count;
  }
  bool skip(std::uint64_t count) override {
    if (count > bytes_.size()) return false;
    bytes_ = bytes_.subspan(count);
    return true;
  }

 private:
  std::span<const std::byte> bytes_;
};

}  // namespace

std::size_t belfry::test::largest_allowed(const std::uint8_t*, std::size_t size) {
  return std::max(mib_or_twice(size), std::size_t{kMostTarHeader} + 1);
}

int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace belfry;
  const std::vector<std::byte> file = test::bytes_of({data, size});
  InputBytes bytes(file);
  test::may_refuse([&] {
    TarMembers members(bytes, "fuzz");
    std::uint64_t end = 0;
    while (const auto member = members.next()) {
      test::check(member->offset == end && member->head % 512 == 0, "a gap between members");
      end = member->offset + member->head + (member->length + 511) / 512 * 512;
      test::check(members.content(100).size() <= std::min<std::uint64_t>(member->length, 100),
                  "too much content");
    }
  });
  return 0;
}
