#include "belfry/framework/group/agreement.h"

#include <mutex>

#include "belfry/tests/framework/framework_test_support.h"
#include "belfry/tests/support/process_threads.h"

namespace belfry {
namespace agreement_test {

using ::testing::HasSubstr;

using Items = std::vector<AgreedItem>;

// The message in each of three processes if the last one has other items than the first two.
std::vector<std::string> told(const Items& items, const Items& last) {
  std::mutex mutex;
  std::vector<std::string> all;
  test::run_processes(3, [&](const std::shared_ptr<Processes>& processes) {
    std::string message;
    try {
      require_agreement(*processes, processes->rank() == 2 ? last : items);
    } catch (const InvalidArgument& error) {
      message = error.what();
    }
    const std::lock_guard lock(mutex);
    all.push_back(message);
  });
  return all;
}

const Items kItems{{"the seed", "1"}, {"variable 'W'", "f32 [2]"}, {"the data", ""}};

TEST(Agreement, OfEqualItemsIsSilent) {
  EXPECT_THAT(told(kItems, kItems), testing::Each(""));
  EXPECT_THAT(told({}, {}), testing::Each(""));
}

TEST(Agreement, NamesTheProcessTheItemAndBothValues) {
  Items last = kItems;
  last[1].value = "f32 [3]";
  const std::vector<std::string> all = told(kItems, last);
  ASSERT_EQ(all.size(), 3u);
  for (const std::string& message : all) {
    EXPECT_THAT(message, HasSubstr("rank 2 on "));
    EXPECT_THAT(message, HasSubstr("variable 'W' is f32 [3] there, and f32 [2] in rank 0"));
  }
}

TEST(Agreement, TellsAnEmptyValue) {
  Items last = kItems;
  last[2].value = "mnist";
  EXPECT_THAT(told(kItems, last)[0], HasSubstr("the data is mnist there, and none in rank 0"));
}

TEST(Agreement, NamesWhatOneOfThemLacks) {
  const Items shorter(kItems.begin(), kItems.end() - 1), first(kItems.begin() + 1, kItems.end());
  EXPECT_THAT(told(kItems, shorter)[0], HasSubstr("it lacks the data"));
  EXPECT_THAT(told(shorter, kItems)[0], HasSubstr("rank 0 lacks the data"));
  EXPECT_THAT(told(kItems, first)[0], HasSubstr("it lacks the seed, which is 1 in rank 0"));
  EXPECT_THAT(told(first, kItems)[0], HasSubstr("rank 0 lacks the seed, which is 1 there"));
  const Items turned{kItems[1], kItems[0], kItems[2]};
  EXPECT_THAT(
      told(kItems, turned)[0],
      HasSubstr("variable 'W', which is f32 [2], comes where rank 0 has the seed, which is 1"));
}

}  // namespace agreement_test
}  // namespace belfry
