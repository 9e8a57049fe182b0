// Runs that start from the weights of another.
#include "belfry/framework/graph/scopes.h"
#include "belfry/tests/trainers/program/run_support.h"
#include "belfry/towers/variable_getters.h"
#include "belfry/trainers/core/trainer.h"
#include "belfry/trainers/optimizers/weight_averages.h"

namespace belfry {
namespace training_load_test {

using testing::AllOf;
using testing::HasSubstr;
using testing::Not;

class TrainingLoadTest : public TrainingRunTest {};

TEST_F(TrainingLoadTest, LoadsWhatBothHave) {
  EXPECT_EQ(start({"--devices=cpu:1", "--max_steps=3"}).code, 0);
  Recipe wider = small_recipe();
  wider.optimizer = adam(0.0);
  wider.model = [](Tower& tower, Output x, Output y) {
    return smooth_model(tower, x, y) +
           reduce_mean(square(dense(tower, "other", x, {.units = 1}))) * 0.0;
  };
  const std::string hash = report()["params_hash"];
  const std::string from = "--load=" + directory_ + "/checkpoints/latest";
  const TrainResult done =
      run_train({"--devices=cpu:1", "--max_steps=1", from, "--json=" + json_.string()}, wider);
  EXPECT_EQ(done.code, 0) << done.error;
  EXPECT_THAT(done.out, AllOf(HasSubstr("loaded 4 weights of "),
                              HasSubstr("not in it, so these start anew: 2 (other/W, other/b)")));
  Recipe same = small_recipe();
  same.optimizer = sgd(0.0);
  EXPECT_EQ(run_train({"--devices=cpu:1", "--max_steps=1",
                       "--load=" + directory_ + "/checkpoints/latest", "--json=" + json_.string()},
                      same)
                .code,
            0);
  EXPECT_EQ(report()["params_hash"], hash);
}

TEST_F(TrainingLoadTest, SaysThatARunThatResumesLoadsNothing) {
  EXPECT_EQ(start({"--devices=cpu:1", "--max_steps=3"}).code, 0);
  const TrainResult resumed =
      start({"--devices=cpu:1", "--max_steps=4", "--load=" + directory_ + "/checkpoints/latest"});
  EXPECT_EQ(resumed.code, 0) << resumed.error;
  EXPECT_THAT(resumed.out, HasSubstr("has no use: the run resumes from its own checkpoint"));
}

TEST_F(TrainingLoadTest, WarnsOfWeightsThatNoCheckpointKeeps) {
  Recipe recipe = small_recipe();
  recipe.model = [](Tower& tower, Output x, Output y) {
    OverrideCachingDevice cache({"/cpu:0"}, "/cpu:0", 64);
    const VariableScope scope(tower.graph(), cache);
    variable(tower.graph(), "scale", {1}, {.trainable = false});
    return smooth_model(tower, x, y);
  };
  EXPECT_THAT(start({"--devices=cpu:2", "--max_steps=1"}, recipe).error,
              HasSubstr("leave out local weights that are not trained: 1 (scale)"));
  std::filesystem::remove_all(directory_);
  EXPECT_THAT(start({"--devices=cpu:2", "--max_steps=1"}).error, Not(HasSubstr("not trained")));
}

// The weights of a run, in a file of another program's names: those of the run.
class NamedLoadTest : public TrainingLoadTest {
 protected:
  NamedLoadTest() : names_(directory_ + ".names") {
    write_text_file(local_file_system(), names_,
                    "needs pads=torch\nfc{i}/W = fc{i}/W\nfc{i}/b = fc{i}/b\n");
  }
  ~NamedLoadTest() override { std::filesystem::remove(names_); }

  std::string load() const {
    return "--load=" + directory_ + "/checkpoints/latest/model.safetensors";
  }
  std::string names() const { return "--names=" + names_; }

  std::string names_;
};

TEST_F(NamedLoadTest, LoadsWeightsByNamesOfAnotherProgram) {
  EXPECT_EQ(start({"--devices=cpu:1", "--max_steps=3"}).code, 0);
  const std::string hash = report()["params_hash"];
  Recipe same = small_recipe();
  same.optimizer = sgd(0.0);
  for (const char* const devices : {"--devices=cpu:1", "--devices=cpu:2"}) {
    const TrainResult done =
        run_train({devices, "--max_steps=1", load(), names(), "--json=" + json_.string()}, same);
    EXPECT_EQ(done.code, 0) << done.error;
    EXPECT_THAT(done.out, HasSubstr("loaded 4 weights of "));
    EXPECT_THAT(done.error, HasSubstr("--pads=torch, a flag that this program lacks"));
    EXPECT_EQ(report()["params_hash"], hash);
  }
}

TEST_F(NamedLoadTest, RefusesWhatDoesNotFitOrComputesSomethingElse) {
  EXPECT_EQ(start({"--devices=cpu:1", "--max_steps=3"}).code, 0);
  std::string pads = "same";
  Recipe recipe = small_recipe();
  recipe.flags = {{.name = "pads", .variable = &pads, .text = "how", .choices = {"same", "torch"}}};
  EXPECT_THAT(run_train({load(), names(), "--max_steps=1"}, recipe).error,
              HasSubstr("these weights need --pads=torch"));
  EXPECT_EQ(run_train({load(), names(), "--max_steps=1", "--pads=torch"}, recipe).code, 0);

  Recipe other = small_recipe();
  other.model = [](Tower& tower, Output x, Output y) {
    return smooth_model(tower, x, y) +
           reduce_mean(square(dense(tower, "other", x, {.units = 1}))) * 0.0;
  };
  EXPECT_THAT(run_train({load(), names(), "--max_steps=1"}, other).error,
              AllOf(HasSubstr("no tensor becomes 'other/W'"), HasSubstr("(--partial)")));
  EXPECT_THAT(run_train({load(), names(), "--max_steps=1", "--partial"}, other).out,
              HasSubstr("not in it, so these start anew: 2 (other/W, other/b)"));
}

TEST_F(NamedLoadTest, NotesInItsCheckpointsWhatTheWeightsNeed) {
  EXPECT_EQ(start({"--devices=cpu:1", "--max_steps=3"}).code, 0);
  const std::string tuned = directory_ + "_tuned";
  const std::string into = "--run_dir=" + tuned;
  const TrainResult done = run_train({"--devices=cpu:1", load(), names(), "--max_steps=1", into});
  EXPECT_EQ(done.code, 0) << done.error;
  EXPECT_EQ(run_train({"--devices=cpu:1", "--max_steps=2", into}).code, 0) << "it resumes";
  std::string pads = "same";
  Recipe recipe = small_recipe();
  recipe.flags = {{.name = "pads", .variable = &pads, .text = "how", .choices = {"same", "torch"}}};
  EXPECT_THAT(run_train({"--load=" + tuned, "--max_steps=1"}, recipe).error,
              HasSubstr("these weights need --pads=torch"));
  std::filesystem::remove_all(tuned);
}

TEST_F(NamedLoadTest, ComparesNeededNumbersAsNumbers) {
  EXPECT_EQ(start({"--devices=cpu:1", "--max_steps=3"}).code, 0);
  write_text_file(local_file_system(), names_,
                  "needs theta=500000\nneeds tied=false\nfc{i}/W = fc{i}/W\nfc{i}/b = fc{i}/b\n");
  double theta = 500000;
  bool tied = false;
  Recipe recipe = small_recipe();
  recipe.flags = {{.name = "theta", .variable = &theta, .text = "how far"},
                  {.name = "tied", .variable = &tied, .text = "whether"}};
  const TrainResult done = run_train({load(), names(), "--max_steps=1"}, recipe);
  EXPECT_EQ(done.code, 0) << done.error;
  EXPECT_THAT(run_train({load(), names(), "--max_steps=1", "--theta=10000"}, recipe).error,
              HasSubstr("these weights need --theta=500000"));
  theta = 500000;
  EXPECT_THAT(run_train({load(), names(), "--max_steps=1", "--tied"}, recipe).error,
              HasSubstr("these weights need --tied=false"));
}

TEST_F(NamedLoadTest, RefusesWeightsOfWhichNoneFitsThoughSomeMayBeMissing) {
  EXPECT_EQ(start({"--devices=cpu:1", "--max_steps=3"}).code, 0);
  write_text_file(local_file_system(), names_, "other.{i} = fc{i}/W\n");
  EXPECT_THAT(
      run_train({load(), names(), "--max_steps=1", "--partial"}).error,
      AllOf(HasSubstr("model.safetensors: no tensor of it becomes a weight of the model by "),
            HasSubstr(names_)));
}

TEST_F(NamedLoadTest, LooksForWeightsBeforeItReadsData) {
  const TrainResult refused = run_train({"--load=/nope", names()}, unreadable_recipe());
  EXPECT_EQ(refused.code, 1);
  EXPECT_THAT(refused.error, AllOf(HasSubstr("--load=/nope: "), Not(HasSubstr("the data were"))));
}

TEST_F(NamedLoadTest, TellsShapesFromWhatIsMissingAndWhatIsLeftOut) {
  EXPECT_EQ(start({"--devices=cpu:1", "--max_steps=3"}).code, 0);
  Recipe other = small_recipe();
  other.model = [](Tower& tower, Output x, Output y) {
    const Output hidden = tanh(dense(tower, "fc0", x, {.units = 5}));
    return reduce_mean(square(dense(tower, "fc1", hidden, {.units = 3, .bias = false}) - y));
  };
  const std::string said =
      run_train({"--devices=cpu:1", load(), names(), "--max_steps=1", "--partial"}, other).out;
  EXPECT_THAT(
      said, AllOf(HasSubstr("loaded 2 weights of "),
                  HasSubstr("of another shape, so these start anew: 1 (fc1/W (f64[5,1] "
                            "there, f64[5,3] here))"),
                  HasSubstr("\nleft out: "), HasSubstr("it becomes 'fc1/b', which the model lacks"),
                  Not(HasSubstr("not in it")), Not(HasSubstr("keeps no such weights"))));
}

TEST_F(NamedLoadTest, RefusesFlagsWithoutEachOther) {
  EXPECT_THAT(run_train({"--load=w.safetensors"}).error, HasSubstr("by --names=NAME"));
  EXPECT_THAT(run_train({names()}).error, HasSubstr("is about what --load takes"));
  EXPECT_THAT(run_train({"--load=w", "--partial"}).error, HasSubstr("no use without --names"));
  EXPECT_THAT(run_train({"--load=w", names(), "--load_weights=raw"}).error,
              HasSubstr("--load_weights=raw has no use beside --names="));
  EXPECT_THAT(run_train({"--load=w", "--names=gpt"}).error,
              AllOf(HasSubstr("--names=gpt: there are no names 'gpt'"), HasSubstr("'gpt2'?")));
}

TEST_F(TrainingLoadTest, LooksForWeightsBeforeItReadsData) {
  const TrainResult refused = run_train({"--load=/nope"}, unreadable_recipe());
  EXPECT_EQ(refused.code, 1);
  EXPECT_THAT(refused.error, AllOf(HasSubstr("--load=/nope: "), Not(HasSubstr("the data were"))));
}

TEST_F(TrainingLoadTest, LoadsAModelWhoseHeadIsReplaced) {
  EXPECT_EQ(start({"--devices=cpu:1", "--max_steps=3"}).code, 0);
  const std::string from = "--load=" + directory_ + "/checkpoints/latest";
  const auto with_head = [](const char* body, const char* head) {
    Recipe recipe = small_recipe();
    recipe.model = [=](Tower& tower, Output x, Output y) {
      const Output hidden = tanh(dense(tower, body, x, {.units = 5}));
      return reduce_mean(square(dense(tower, head, hidden, {.units = 3}) - y));
    };
    return recipe;
  };
  const TrainResult done =
      run_train({"--devices=cpu:2", "--max_steps=1", from}, with_head("fc0", "fc1"));
  EXPECT_EQ(done.code, 0) << done.error;
  EXPECT_THAT(done.out, HasSubstr("loaded 2 weights of "));
  EXPECT_THAT(done.out,
              HasSubstr("of another shape, so these start anew: 2 (fc1/W (f64[5,1] there, f64[5,3] "
                        "here), fc1/b (f64[1] there, f64[3] here))"));
  const TrainResult none =
      run_train({"--devices=cpu:2", "--max_steps=1", from}, with_head("body", "fc1"));
  EXPECT_EQ(none.code, 1);
  EXPECT_THAT(none.error,
              AllOf(HasSubstr("--load="), HasSubstr("no weight of the checkpoint "),
                    HasSubstr("the model has body/W, body/b"), HasSubstr("fc1/W (f64[5,1] there")));
}

TEST_F(TrainingLoadTest, AveragesBeginAtTheWeightsThatAreLoaded) {
  EXPECT_EQ(start({"--devices=cpu:1", "--max_steps=3"}).code, 0);
  const std::string from = "--load=" + directory_ + "/checkpoints/latest";
  for (const char* devices : {"--devices=cpu:1", "--devices=cpu:2"}) {
    std::vector<double> weights, averages;
    const Recipe recipe = recipe_that(0, [&](Trainer& trainer) {
      for (const Variable variable : trainer.built().nodes().towers[0].trainables) {
        const Tensor value = trainer.session().read(variable);
        EXPECT_EQ(trainer.session().read(average_of(variable)), value) << variable.name();
      }
    });
    const TrainResult done =
        run_train({devices, "--max_steps=1", "--moving_average=0.9", from}, recipe);
    EXPECT_EQ(done.code, 0) << done.error;
    EXPECT_THAT(done.out, Not(HasSubstr("start anew")));
  }
}

// A first update by Adam is as large as the rate, unless its counter says that it is a later one.
TEST_F(TrainingLoadTest, LeavesTheStateOfTheOptimizerBehind) {
  Recipe recipe = small_recipe();
  recipe.optimizer = adam(0.01);
  EXPECT_EQ(run_train({"--devices=cpu:1", "--max_steps=9", "--run_dir=" + directory_}, recipe).code,
            0);
  std::vector<std::string> loaded;
  Recipe next = recipe_that(0, [&](Trainer& trainer) {
    for (const Variable variable : trainer.graph().variables(kGlobalVariables)) {
      const Tensor value = trainer.session().read(variable);
      if (variable.logical_name() == "Adam/step") {
        EXPECT_EQ(value.item<std::int64_t>(), 0);
        loaded.emplace_back(variable.logical_name());
      } else if (variable.logical_name().ends_with("/Adam")) {
        for (const double one : value.data<double>()) EXPECT_EQ(one, 0);
        loaded.emplace_back(variable.logical_name());
      }
    }
  });
  next.optimizer = adam(0.01);
  const TrainResult done =
      run_train({"--devices=cpu:1", "--max_steps=1", "--load=" + directory_}, next);
  EXPECT_EQ(done.code, 0) << done.error;
  EXPECT_THAT(done.out, HasSubstr("loaded 4 weights of "));
  EXPECT_EQ(loaded.size(), 5u) << "all were looked at";
}

TEST_F(TrainingLoadTest, NamesTheFlagThatAsksForAveragesThatThereAreNot) {
  EXPECT_EQ(start({"--devices=cpu:1", "--max_steps=1"}).code, 0);
  const TrainResult refused =
      run_train({"--devices=cpu:1", "--load=" + directory_, "--load_weights=average"});
  EXPECT_EQ(refused.code, 1);
  EXPECT_THAT(refused.error, HasSubstr("take its raw ones (--load_weights)"));
}

TEST_F(TrainingLoadTest, TakesTheWeightsThatWereValidatedUnlessOthersAreAskedFor) {
  EXPECT_EQ(start({"--devices=cpu:1", "--max_steps=5", "--moving_average=0.9"}).code, 0);
  const auto hash_of = [&](const std::string& flag) {
    Recipe same = small_recipe();
    same.optimizer = sgd(0.0);
    const TrainResult done = run_train({"--devices=cpu:1", "--max_steps=1", "--load=" + directory_,
                                        flag, "--json=" + json_.string()},
                                       same);
    EXPECT_EQ(done.code, 0) << done.error;
    const bool says = done.out.find("by their moving averages") != std::string::npos;
    EXPECT_EQ(says, flag != "--load_weights=raw");
    return report()["params_hash"].get<std::string>();
  };
  const std::string raw = hash_of("--load_weights=raw");
  EXPECT_NE(hash_of("--load_weights=validated"), raw);
  EXPECT_EQ(hash_of("--load_weights=average"), hash_of("--load_checkpoint=latest"));
  const TrainResult refused = run_train({"--load_weights=raw"}, small_recipe());
  EXPECT_EQ(refused.code, 2);
  EXPECT_THAT(refused.error, HasSubstr("--load_weights=raw is about what --load takes"));
}

}  // namespace training_load_test
}  // namespace belfry
