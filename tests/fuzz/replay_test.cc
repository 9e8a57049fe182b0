// Runs a fuzz target without a fuzzer: over its corpus, and over mutations of that.
#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <span>
#include <string>

#include <gtest/gtest.h>

#include "belfry/framework/base/file_system.h"
#include "belfry/framework/base/text.h"
#include "belfry/tests/fuzz/largest_allocation.h"
#include "belfry/tests/fuzz/target.h"
#include "belfry/tests/support/mutate.h"

namespace belfry::test {
namespace {

// The target that this program was linked with: `idx` of fuzz_idx_tests.
std::string target() {
  const std::string program = std::filesystem::read_symlink("/proc/self/exe").filename();
  const auto begin = program.find('_') + 1;
  return program.substr(begin, program.rfind('_') - begin);
}

// BELFRY_FUZZ_MUTATIONS asks for another number.
int mutations() {
  if (const char* const asked = std::getenv("BELFRY_FUZZ_MUTATIONS")) return std::atoi(asked);
  // These two do much for each: they read all flags, or write and read a file.
  return target() == "flags" || target() == "config" ? 2'000 : 10'000;
}

constexpr std::uint64_t kSeed = 20'240'817;

std::vector<Input> corpus() {
  const std::string folder = cat(BELFRY_CORPORA, "/", target());
  std::vector<Input> inputs;
  for (const std::string& name : local_file_system().list(folder)) {
    const auto bytes = local_file_system().read(cat(folder, "/", name));
    const auto* const begin = reinterpret_cast<const std::uint8_t*>(bytes.data());
    inputs.emplace_back(begin, begin + bytes.size());
  }
  return inputs;
}

std::string hex(const Input& input) {
  std::string digits;
  for (const std::uint8_t byte :
       std::span(input).first(std::min<std::size_t>(input.size(), 4096))) {
    digits += "0123456789abcdef"[byte >> 4];
    digits += "0123456789abcdef"[byte & 15];
  }
  return digits;
}

// True if the target takes the input and allocates no more than it may.
::testing::AssertionResult survives(const Input& input) {
  const std::size_t limit = largest_allowed(input.data(), input.size());
  forget_allocations();
  try {
    LLVMFuzzerTestOneInput(input.data(), input.size());
  } catch (const std::exception& error) {
    return ::testing::AssertionFailure() << error.what() << ", input " << hex(input);
  }
  if (largest_allocation() <= limit) return ::testing::AssertionSuccess();
  return ::testing::AssertionFailure()
         << "allocated " << largest_allocation() << " bytes at once, more than " << limit
         << ", input " << hex(input);
}

TEST(FuzzTarget, TakesItsCorpus) {
  ASSERT_FALSE(corpus().empty());
  for (const Input& input : corpus()) EXPECT_TRUE(survives(input));
}

TEST(FuzzTarget, TakesMutationsOfItsCorpus) {
  Mutator mutator(corpus(), kSeed);
  const int count = mutations();
  for (int i = 0; i < count; ++i) ASSERT_TRUE(survives(mutator.next())) << "mutation " << i;
}

// Long inputs, as short ones may allocate a MiB whatever they hold.
TEST(FuzzTarget, AllocatesLittleForLongInputs) {
  Mutator mutator(corpus(), kSeed);
  for (int i = 0; i < 20; ++i) {
    const Input part = mutator.next();
    if (part.empty()) continue;
    Input input = part;
    const std::size_t begin = part.size() / 2;
    while (input.size() < 2'000'000)
      input.insert(input.end(), part.begin() + static_cast<std::ptrdiff_t>(begin), part.end());
    EXPECT_TRUE(survives(input)) << "mutation " << i;
  }
}

}  // namespace
}  // namespace belfry::test
