#include "belfry/trainers/util/flag_values.h"

#include <gtest/gtest.h>

namespace belfry {
namespace flag_values_test {

TEST(NamingFlag, PutsTheFlagBeforeAnErrorAndKeepsTheCause) {
  try {
    naming_flag<Error>("--load=PATH", [] { throw IoError("no such file"); });
    ADD_FAILURE() << "nothing was thrown";
  } catch (const Error& error) {
    EXPECT_STREQ(error.what(), "--load=PATH: no such file");
    EXPECT_THROW(std::rethrow_if_nested(error), IoError);
  }
  EXPECT_EQ(naming_flag<Error>("--load=PATH", [] { return 3; }), 3);
}

TEST(NamingFlag, LetsOtherErrorsPass) {
  const auto fail = [] { throw IoError("no such file"); };
  EXPECT_THROW((naming_flag<FlagError, InvalidArgument>("--load=PATH", fail)), IoError);
  EXPECT_THROW(as_flag("--load=PATH", fail), IoError);
}

TEST(AsFlag, MakesAWrongValueAMistakeOnTheCommandLine) {
  try {
    as_flag("--precision=f8", [] { throw InvalidArgument("'f8' is no precision"); });
    ADD_FAILURE() << "nothing was thrown";
  } catch (const FlagError& error) {
    EXPECT_STREQ(error.what(), "--precision=f8: 'f8' is no precision");
  }
}

}  // namespace flag_values_test
}  // namespace belfry
