// Training that recomputes activations in the backward pass gives the same bits in less memory.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "belfry/framework/base/text.h"
#include "belfry/framework/gradients/gradients.h"
#include "belfry/tests/trainers/core/small_problem.h"
#include "belfry/trainers/core/model_summary.h"
#include "belfry/trainers/core/trainer.h"
#include "belfry/trainers/core/trainer_kinds.h"
#include "belfry/trainers/data/synthetic_data.h"
#include "belfry/trainers/models/models.h"
#include "belfry/trainers/util/hash.h"

namespace belfry {
namespace recompute_test {

using testing::AllOf;
using testing::HasSubstr;

using Scopes = std::vector<std::string>;

struct Wanted {
  const char* model;
  ModelOptions options = {};
  int towers = 2, batch_size = 2;
  const char* kind = "";  // "": the default for so many towers
};

std::unique_ptr<Trainer> make(const Wanted& wanted, const Scopes& recompute, const Dataset& data,
                              bool dry_run) {
  const ModelSpec spec = find_model(wanted.model, 0, wanted.options);
  TrainerOptions options{.model = spec.model,
                         .optimizer = sgd(0.1),
                         .devices = cpus(wanted.towers),
                         .batch_size = wanted.batch_size,
                         .epochs = 2,
                         .recompute = recompute,
                         .session = {.dry_run = dry_run}};
  const std::string_view kind = wanted.kind;
  if (kind == "parameter_server") options.aggregation.allreduce = "colocate";
  return std::make_unique<Trainer>(find_trainer(!kind.empty()        ? kind
                                                : wanted.towers == 1 ? "simple"
                                                                     : "replicated"),
                                   std::move(options), data);
}

std::unique_ptr<Dataset> data_of(const Wanted& wanted) {
  const ModelSpec spec = find_model(wanted.model, 0, wanted.options);
  return synthetic_data(spec.fields, spec.classes, wanted.towers * wanted.batch_size, 3);
}

// The hash of a training. Averages of batch norm are part of the state.
std::string trained(const Wanted& wanted, const Scopes& recompute) {
  const auto data = data_of(wanted);
  const auto trainer = make(wanted, recompute, *data, false);
  trainer->train();
  return cat(params_hash(trainer->session(), trainer->graph()), " ",
             state_hash(trainer->session(), trainer->graph()));
}

// The planned peak of all devices together.
std::int64_t peak(const Wanted& wanted, const Scopes& recompute) {
  const auto data = data_of(wanted);
  std::int64_t bytes = 0;
  for (const DeviceUse& use : make(wanted, recompute, *data, true)->session().device_use())
    bytes += use.peak_bytes;
  return bytes;
}

TEST(RecomputeTraining, GivesTheSameBitsOfResNet20) {
  const Wanted resnet{"resnet20"};
  EXPECT_EQ(trained(resnet, {"group*"}), trained(resnet, {}));
  EXPECT_EQ(trained(resnet, {"group*/block*"}), trained(resnet, {}));
  const Wanted synchronised{"resnet20", {.batch_norm = BatchNormOver::kSynchronised}};
  EXPECT_EQ(trained(synchronised, {"group*/block*"}), trained(synchronised, {}));
  for (const char* const kind : {"parameter_server", "async"}) {
    const Wanted shared{.model = "resnet20", .kind = kind};
    EXPECT_EQ(trained(shared, {"group*/block*"}), trained(shared, {})) << kind;
  }
}

TEST(RecomputeTraining, GivesTheSameBitsOfGpt) {
  const Wanted gpt{"gpt", {.gpt = models::GptSize{.sequence_length = 8}}, 1, 1};
  EXPECT_EQ(trained(gpt, {"block*"}), trained(gpt, {}));
}

TEST(RecomputeTraining, PlansFewerBytes) {
  const ModelOptions synchronised{.batch_norm = BatchNormOver::kSynchronised};
  struct Case {
    Wanted wanted;
    Scopes scopes;
    double share;  // of the bytes planned without recomputation
  };
  for (const auto& [wanted, scopes, share] :
       {Case{{"gpt", {}, 1, 8}, {"block*"}, 0.55}, Case{{"gpt", {}, 2, 4}, {"block*"}, 0.7},
        Case{{"resnet20", {}, 1, 128}, {"group*/block*"}, 0.65},
        Case{{"resnet20", {}, 2, 64}, {"group*/block*"}, 0.65},
        Case{{"resnet20", {}, 2, 64, "parameter_server"}, {"group*/block*"}, 0.65},
        Case{{"resnet20", {}, 2, 64, "async"}, {"group*/block*"}, 0.66},
        Case{{"resnet20", synchronised, 2, 64}, {"group*/block*"}, 0.8},
        Case{{"resnet20", synchronised, 4, 32}, {"group*/block*"}, 0.85}}) {
    EXPECT_LT(static_cast<double>(peak(wanted, scopes)),
              share * static_cast<double>(peak(wanted, {})))
        << wanted.model << " on " << wanted.towers;
  }
}

// A scope with a single layer saves nothing: other nodes read all its tensors, too.
TEST(RecomputeTraining, WarnsOnceOfAScopeThatSavesNothing) {
  const Wanted mlp{"mlp"};
  const auto data = data_of(mlp);
  for (const bool first : {true, false}) {
    testing::internal::CaptureStderr();
    const auto trainer = make(mlp, {"fc1*", "fc0*"}, *data, true);
    const std::string errors = testing::internal::GetCapturedStderr();
    EXPECT_TRUE(trainer->graph().nodes(kRecomputed).empty());
    for (const char* const scope : {"recompute=fc0*", "recompute=fc1*"})
      EXPECT_EQ(errors.find(cat(scope, " saves nothing here: ")) != std::string::npos, first)
          << errors;
  }
  const Wanted gpt{"gpt", {.gpt = models::GptSize{.sequence_length = 8}}, 2, 1};
  const auto text = data_of(gpt);
  testing::internal::CaptureStderr();
  make(gpt, {"block*"}, *text, true);
  EXPECT_EQ(testing::internal::GetCapturedStderr(), "");
}

TEST(RecomputeTraining, WarnsOfTheSecondOfTwoScopesForTheSameNodes) {
  const Wanted gpt{"gpt", {.gpt = models::GptSize{.sequence_length = 8}}, 1, 1};
  const auto data = data_of(gpt);
  testing::internal::CaptureStderr();
  make(gpt, {"block0", "block*", "block1"}, *data, true);
  const std::string errors = testing::internal::GetCapturedStderr();
  EXPECT_THAT(errors, HasSubstr("recompute=block1 saves nothing here: "));
  EXPECT_EQ(errors.find("block0"), errors.npos) << errors;
  EXPECT_EQ(errors.find("block*"), errors.npos) << errors;
}

// Start-up builds no second trainer to find out.
TEST(RecomputeTraining, BuildsTheModelAsOftenAsWithout) {
  const Wanted resnet{"resnet20", {}, 1};
  const auto data = data_of(resnet);
  const ModelSpec spec = find_model(resnet.model, 0, resnet.options);
  const auto built = [&](const Scopes& recompute) {
    int times = 0;
    const auto model = [&](Tower& tower, Output image, Output label) {
      ++times;
      return spec.model(tower, std::vector{image, label});
    };
    Trainer(find_trainer("simple"),
            {.model = model,
             .optimizer = sgd(0.1),
             .devices = cpus(1),
             .batch_size = resnet.batch_size,
             .recompute = recompute,
             .session = {.dry_run = true}},
            *data);
    return times;
  };
  EXPECT_EQ(built({"group*", "group*/block*"}), built({}));
}

TEST(RecomputeTraining, CountsNoArithmeticTwice) {
  const Wanted resnet{"resnet20"};
  const auto data = data_of(resnet);
  EXPECT_EQ(step_multiply_adds(make(resnet, {"group*"}, *data, true)->built().nodes()),
            step_multiply_adds(make(resnet, {}, *data, true)->built().nodes()));
}

TEST(RecomputeTraining, RefusesAScopeThatTheModelHasNot) {
  for (const int towers : {1, 2}) {
    const Wanted mlp{"mlp", {}, towers};
    const auto data = data_of(mlp);
    try {
      make(mlp, {"fc0", "block*"}, *data, true);
      FAIL();
    } catch (const InvalidArgument& error) {
      EXPECT_THAT(error.what(), AllOf(HasSubstr("recompute=block*: the model has no nodes"),
                                      HasSubstr("the outermost are fc0, fc1, fc2")));
    }
  }
}

}  // namespace recompute_test
}  // namespace belfry
