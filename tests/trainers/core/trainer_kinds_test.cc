#include "belfry/trainers/core/trainer_kinds.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "belfry/tests/trainers/core/small_problem.h"
#include "belfry/trainers/util/hash.h"

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
  TrainerKind kind{.name = "own", .summary = "", .combine = find_trainer("simple").combine};
  kind.default_strategy = "naive";
  EXPECT_THAT(refusal_of(kind), HasSubstr("'own' needs both `accepts` and a default strategy"));
  kind.default_strategy = "";
  kind.accepts = [](std::string_view) { return true; };
  EXPECT_THAT(refusal_of(kind), HasSubstr("'own' needs both `accepts` and a default strategy"));
  kind.accepts = nullptr;
  kind.packs_gradients = true;
  EXPECT_THAT(refusal_of(kind), HasSubstr("'own' packs or buckets gradients"));
  kind.update = find_trainer("async").update;
  EXPECT_THAT(refusal_of(kind), HasSubstr("either TrainerKind::combine or TrainerKind::update"));
  kind.combine = nullptr;
  kind.update = nullptr;
  EXPECT_THAT(refusal_of(kind), HasSubstr("either TrainerKind::combine or TrainerKind::update"));
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

// --parameter_device=cpu puts all variables on cpu:0, though no tower is there.
TEST(TrainerKinds, ThatSpreadVariablesPutThemOnTheCpuIfAsked) {
  const auto data = smooth_data(64);
  for (const char* name : {"parameter_server", "async"}) {
    const TrainerKind& kind = find_trainer(name);
    EXPECT_TRUE(kind.spreads_variables());
    std::vector<std::string> hashes;
    for (const bool on_cpu : {false, true}) {
      Trainer trainer(kind,
                      {.model = smooth_model,
                       .optimizer = momentum(0.1),
                       .devices = {DeviceSpec::local("CPU", 1), DeviceSpec::local("CPU", 2)},
                       .parameters_on_cpu = on_cpu,
                       .batch_size = 8},
                      *data);
      trainer.train();
      for (const Variable& v : trainer.towers()[0].trainables)
        EXPECT_EQ(trainer.session().placement(v) == DeviceSpec::local("CPU", 0), on_cpu)
            << v.name();
      hashes.push_back(state_hash(trainer.session(), trainer.graph()));
    }
    EXPECT_EQ(hashes[0], hashes[1]) << name;
  }
}

}  // namespace trainer_kinds_test
}  // namespace belfry
