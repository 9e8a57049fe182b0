#include "belfry/trainers/trainer_kinds.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace belfry {
namespace trainer_kinds_test {

std::string refusal_of(const TrainerKind& kind) {
  try {
    register_trainer(kind);
  } catch (const InvalidArgument& error) {
    return error.what();
  }
  return "";
}

TEST(TrainerKinds, RefuseWhatContradictsItself) {
  using testing::HasSubstr;
  TrainerKind kind{.name = "own", .summary = "", .make = make_trainer<SimpleTrainer>};
  kind.default_strategy = "naive";
  EXPECT_THAT(refusal_of(kind), HasSubstr("'own' needs both `accepts` and a default strategy"));
  kind.default_strategy = "";
  kind.accepts = [](std::string_view) { return true; };
  EXPECT_THAT(refusal_of(kind), HasSubstr("'own' needs both `accepts` and a default strategy"));
  kind.accepts = nullptr;
  kind.packs = true;
  EXPECT_THAT(refusal_of(kind), HasSubstr("'own' packs or buckets gradients"));
  kind.name = "";
  EXPECT_THAT(refusal_of(kind), HasSubstr("needs a name"));
  EXPECT_THAT(trainer_names(), testing::Not(testing::Contains("own")));
  kind = find_trainer("simple");
  EXPECT_THAT(refusal_of(kind), HasSubstr("'simple' is already registered"));
}

TEST(TrainerKinds, AreCanonicalWhereTheySaySo) {
  for (const char* name : {"simple", "replicated", "parameter_server"})
    EXPECT_TRUE(find_trainer(name).canonical) << name;
  EXPECT_FALSE(find_trainer("async").canonical);
}

}  // namespace trainer_kinds_test
}  // namespace belfry
