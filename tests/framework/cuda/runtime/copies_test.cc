// Many small copies in few launches.
#include "belfry/framework/cuda/runtime/copies.h"

#include <numeric>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "belfry/tests/cuda/host_queue.h"

namespace belfry::cuda {
namespace copies_test {

// Copies tensors of these sizes, shifted from multiples of 16 bytes, and checks the bytes beside
// them.
void expect_copied(const std::vector<std::size_t>& bytes, std::size_t from_shift,
                   std::size_t to_shift, int launches) {
  constexpr std::size_t kBeside = 64;
  std::size_t whole = 0;
  for (const std::size_t size : bytes) whole += (size + 15) / 16 * 16 + kBeside;
  std::vector<unsigned char> from(whole + 32), to(whole + 32, 0xee);
  std::iota(from.begin(), from.end(), static_cast<unsigned char>(3));
  const auto aligned = [](std::vector<unsigned char>& memory, std::size_t shift) {
    const auto address = reinterpret_cast<std::uintptr_t>(memory.data());
    return (16 - address % 16) % 16 + shift;
  };
  std::size_t read = aligned(from, from_shift), written = aligned(to, to_shift);
  std::vector<const void*> sources;
  std::vector<void*> targets;
  std::vector<unsigned char> wanted = to;
  for (const std::size_t size : bytes) {
    sources.push_back(from.data() + read);
    targets.push_back(to.data() + written);
    std::copy_n(from.data() + read, size, wanted.data() + written);
    read += (size + 15) / 16 * 16 + kBeside;
    written += (size + 15) / 16 * 16 + kBeside;
  }
  HostQueue queue;
  copy_each(queue, targets, sources, bytes);
  EXPECT_EQ(to, wanted) << from_shift << " " << to_shift;
  EXPECT_EQ(queue.launches(), launches);
}

TEST(Copies, OfManyTensorsAreOneLaunch) {
  for (const std::size_t from : {0, 4, 3})
    for (const std::size_t to : {0, 4})
      expect_copied({4, 0, 16, 5000, 12, 256 * 16, 256 * 16 + 1, 100'000}, from, to, 1);
}

TEST(Copies, OfMoreTensorsThanATableHoldsAreSeveralLaunches) {
  expect_copied(std::vector<std::size_t>(139, 20), 0, 0, 1);
  expect_copied(std::vector<std::size_t>(300, 20), 0, 0, 3);
}

TEST(Copies, OfNothingAreNoLaunch) {
  expect_copied({}, 0, 0, 0);
  expect_copied({0, 0}, 0, 0, 0);
}

}  // namespace copies_test
}  // namespace belfry::cuda
