// Runs a fuzz target without a fuzzer: over its corpus, and over mutations of that.
#include <algorithm>
#include <cstdlib>
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

// BELFRY_FUZZ_MUTATIONS asks for another number.
int mutations() {
  const char* const asked = std::getenv("BELFRY_FUZZ_MUTATIONS");
  return asked ? std::atoi(asked) : BELFRY_MUTATIONS;
}

constexpr std::uint64_t kSeed = 20'240'817;

std::vector<Input> corpus() {
  std::vector<Input> inputs;
  for (const std::string& name : local_file_system().list(BELFRY_CORPUS)) {
    const auto bytes = local_file_system().read(cat(BELFRY_CORPUS, "/", name));
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
