#include "belfry/trainers/core/trainer_kinds.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "belfry/allreduce/strategy.h"
#include "belfry/framework/core_ops/assign.h"
#include "belfry/framework/core_ops/no_op.h"
#include "belfry/framework/graph/scopes.h"
#include "belfry/tests/framework/framework_test_support.h"
#include "belfry/tests/trainers/core/small_problem.h"
#include "belfry/trainers/core/fingerprint_difference.h"
#include "belfry/trainers/core/trainer.h"
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
  kind = {.name = "own", .combine = find_trainer("simple").combine, .updates_between = true};
  EXPECT_THAT(refusal_of(kind), HasSubstr("'own' updates between combinations"));
  kind.name = "";
  EXPECT_THAT(refusal_of(kind), HasSubstr("needs a name"));
  EXPECT_THAT(trainer_names(), testing::Not(testing::Contains("own")));
  kind = find_trainer("simple");
  EXPECT_THAT(refusal_of(kind), HasSubstr("'simple' is already registered"));
}

// The bits of one tower with the whole batch, whatever there is to tell trainers apart.
TEST(TrainerKinds, AreCanonicalWhereTheySaySo) {
  const auto data = smooth_data(48);
  const auto hash = [&](const TrainerKind& kind) {
    const int towers = kind.takes_one_device ? 1 : 4;
    TrainerOptions options{.model = smooth_model,
                           .optimizer = momentum(0.1),
                           .devices = cpus(towers),
                           .aggregation = {.allreduce = kind.default_strategy},
                           .batch_size = 16 / towers,
                           .shards = 4};
    Trainer trainer(kind, std::move(options), *data);
    trainer.train();
    return params_hash(trainer.session(), trainer.graph());
  };
  const std::string one_tower = hash(find_trainer("simple"));
  for (const std::string& name : library_trainers())
    EXPECT_EQ(hash(find_trainer(name)) == one_tower, find_trainer(name).canonical) << name;
  EXPECT_FALSE(find_trainer("async").canonical);
}

// --parameter_device=cpu puts all variables on cpu:0, though no tower is there.
TEST(TrainerKinds, ThatAreNotLinearRefuseALossScale) {
  TrainerKind vote = find_trainer("replicated");
  vote.name = "vote";
  vote.linear = false;
  const TrainerOptions options{.model = smooth_model,
                               .optimizer = momentum(0.1),
                               .devices = cpus(2),
                               .batch_size = 4,
                               .precision = Precision::kF16};
  const auto data = smooth_data(16);
  EXPECT_THAT(
      message_of<InvalidArgument>([&] { Trainer(vote, options, *data); }),
      testing::HasSubstr("the trainer vote combines gradients in a way that is not linear"));
}

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
      for (const Variable& v : trainer.built().nodes().towers[0].trainables)
        EXPECT_EQ(trainer.session().placement(v) == DeviceSpec::local("CPU", 0), on_cpu)
            << v.name();
      hashes.push_back(state_hash(trainer.session(), trainer.graph()));
    }
    EXPECT_EQ(hashes[0], hashes[1]) << name;
  }
}

// The mean of each variable's copies, in every copy, once `updated` has run.
Node& average_copies(const GradientTable& gradients, Node& updated) {
  Graph& graph = gradients.graph();
  GradientRows copies;
  for (int t = 0; t < gradients.towers(); ++t) {
    const ControlDependencies after(graph, {updated});
    const DeviceScope on(graph, gradients.device(t));
    std::vector<Gradient>& row = copies.emplace_back(gradients.row(t));
    for (Gradient& copy : row) copy.value = copy.variable.read("copy");
  }
  const GradientTable means = make_strategy("naive")->reduce(GradientTable(copies));
  std::vector<Node*> assigned;
  for (int t = 0; t < means.towers(); ++t)
    for (const Gradient& mean : means.row(t))
      assigned.push_back(&assign(mean.variable, mean.value));
  return group(graph, assigned, "average");
}

// Local SGD: towers update their copies by each batch, and take the mean of these at the last.
UpdateNodes update_locally(const TrainerOptions& options, const GradientTable& gradients,
                           const UpdateOptions& how) {
  Node& local = apply_gradients(options.optimizer, gradients, {}, how.slots, how.unscaling);
  return {.update = &average_copies(gradients, local),
          .accumulation = {.begin = &local, .add = &local}};
}

const TrainerKind kLocal{.name = "local",
                         .variables = VariablePolicy::kReplicated,
                         .update = update_locally,
                         .updates_between = true};

struct LocalRun {
  std::vector<Tensor> values;
  JsonValue fingerprint;
};

LocalRun run_of(const TrainerKind& kind, const Dataset& data, int towers, int batches,
                bool share = true) {
  TrainerOptions options{.model = smooth_model,
                         .optimizer = sgd(0.1),
                         .devices = cpus(towers),
                         .batch_size = 24 / towers,
                         .batches = {.gradient_accumulation_steps = batches}};
  options.session.share_replicas = share;
  if (kind.accepts) options.aggregation.allreduce = "naive";
  Trainer trainer(kind, std::move(options), data);
  trainer.train();
  EXPECT_TRUE(differing_replicas(trainer.session(), trainer.graph()).empty());
  LocalRun run{.fingerprint = trainer.record().fingerprint()};
  for (const Variable v : trainer.built().nodes().towers[0].trainables)
    run.values.push_back(trainer.session().read(v));
  return run;
}

void expect_close(const LocalRun& a, const LocalRun& b) {
  ASSERT_EQ(a.values.size(), b.values.size());
  for (std::size_t i = 0; i < a.values.size(); ++i)
    for (std::size_t j = 0; j < a.values[i].data<double>().size(); ++j)
      EXPECT_NEAR(a.values[i].data<double>()[j], b.values[i].data<double>()[j], 1e-12) << i;
}

// The mean of copies that were updated once is the update by the mean of gradients.
TEST(TrainerKinds, MayCombineVariablesInsteadOfGradients) {
  const auto data = smooth_data(144);
  const LocalRun replicated = run_of(find_trainer("replicated"), *data, 3, 1);
  for (const bool share : {false, true}) {
    const LocalRun local = run_of(kLocal, *data, 3, 1, share);
    expect_close(local, replicated);
    EXPECT_EQ(first_difference(replicated.fingerprint, local.fingerprint), "");
  }
}

// Of equal samples all copies are alike, and are what one tower makes by as many updates.
TEST(TrainerKinds, MayUpdateBetweenCombinations) {
  const std::int64_t size = 144;  // 6 batches
  const TensorDataset data({{"x", Tensor({size, 4}, std::vector(4 * size, 0.5)), DType::kF64, {4}},
                            {"y", Tensor({size, 1}, std::vector(size, 0.25)), DType::kF64, {1}}},
                           "equal samples");
  const LocalRun one = run_of(find_trainer("simple"), data, 1, 1);
  for (const int batches : {1, 2, 3, 6}) expect_close(run_of(kLocal, data, 2, batches), one);
}

}  // namespace trainer_kinds_test
}  // namespace belfry
