// Checkpoints go from any trainer and number of towers to any other.
#include <filesystem>

#include <gtest/gtest.h>

#include "belfry/framework/checkpoint/checkpoint.h"
#include "belfry/tests/trainers/core/small_problem.h"
#include "belfry/tests/trainers/data/idx_files.h"
#include "belfry/trainers/core/trainer.h"
#include "belfry/trainers/core/trainer_kinds.h"
#include "belfry/trainers/util/hash.h"

namespace belfry {
namespace checkpoint_modes_test {

struct Mode {
  std::string kind, strategy;
  int towers;
};

// Of each trainer, and more.
std::vector<Mode> modes() {
  std::vector<Mode> all{{"replicated", "collective", 1},
                        {"replicated", "naive", 3},
                        {"parameter_server", "colocate", 4}};
  for (const std::string& name : library_trainers()) {
    const TrainerKind& kind = find_trainer(name);
    all.push_back({name, kind.default_strategy, kind.takes_one_device ? 1 : 2});
  }
  return all;
}

std::unique_ptr<Trainer> make(const Mode& mode, const Dataset& data, std::uint64_t seed) {
  TrainerOptions options{
      .model = smooth_model, .optimizer = adam(0.01), .batch_size = 4, .max_steps = 3};
  options.devices.clear();
  for (int i = 0; i < mode.towers; ++i) options.devices.push_back(DeviceSpec::local("CPU", i));
  options.aggregation.allreduce = mode.strategy;
  options.seed = seed;
  return std::make_unique<Trainer>(find_trainer(mode.kind), std::move(options), data);
}

TEST(CheckpointModes, RestoreWeightsSlotsAndCountersInEveryTower) {
  const test::TemporaryFolder folder;
  const auto data = smooth_data(64);
  for (const Mode& from : modes()) {
    const std::string path = folder.path() + "/checkpoint";
    const auto trained = make(from, *data, 1);
    trained->train();
    remove_tree(local_file_system(), path);
    save_checkpoint(trained->session(), path);
    const std::string params = params_hash(trained->session(), trained->graph());
    const std::string state = state_hash(trained->session(), trained->graph());
    for (const Mode& to : modes()) {
      const auto fresh = make(to, *data, 2);
      EXPECT_NE(params_hash(fresh->session(), fresh->graph()), params);
      restore_checkpoint(fresh->session(), path);
      EXPECT_EQ(params_hash(fresh->session(), fresh->graph()), params) << from.kind << to.kind;
      EXPECT_EQ(state_hash(fresh->session(), fresh->graph()), state) << from.kind << to.kind;
      EXPECT_TRUE(differing_replicas(fresh->session(), fresh->graph()).empty()) << to.kind;
      EXPECT_EQ(fresh->session().step(), trained->session().step());
    }
  }
}

}  // namespace checkpoint_modes_test
}  // namespace belfry
