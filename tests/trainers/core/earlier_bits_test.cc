// Why a run that resumes has other bits than the run that saved it.
#include <gtest/gtest.h>

#include "belfry/trainers/core/independence.h"

namespace belfry {
namespace earlier_bits_test {

TEST(EarlierBits, KeepTheFirstReason) {
  const auto by = [](const char* what) { return JsonValue::object().set("arithmetic", what); };
  EXPECT_EQ(earlier_bits(by("X"), by("X")), "");
  EXPECT_EQ(earlier_bits(by("X"), by("Y")), "it was saved by X and resumes with Y");
  EXPECT_EQ(earlier_bits(by("X").set("earlier_bits", "Z"), by("Y")), "Z");
  EXPECT_EQ(earlier_bits(JsonValue::object(), by("Y")), "") << "of an older version";
}

TEST(WhyOtherBits, NamesTheLibraryThatSavedIt) {
  const JsonValue old =
      JsonValue::object().set("arithmetic", "Belfry 0.0.1 with AVX2, oneDNN 2.5.0");
  const JsonValue now =
      JsonValue::object().set("arithmetic", "Belfry 0.0.1 with AVX-512, oneDNN 2.5.0");
  EXPECT_EQ(why_other_bits(old, now),
            "it was saved by Belfry 0.0.1 with AVX2, oneDNN 2.5.0 and resumes with Belfry 0.0.1 "
            "with AVX-512, oneDNN 2.5.0");
  EXPECT_EQ(why_other_bits(now, now), "");
  EXPECT_EQ(why_other_bits(JsonValue::object(), now), "") << "of an older version";
}

}  // namespace earlier_bits_test
}  // namespace belfry
