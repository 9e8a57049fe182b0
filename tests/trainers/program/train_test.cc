// Training runs as from a command line: their output, reports and errors.
#include "belfry/framework/base/text.h"
#include "belfry/tests/trainers/program/train_support.h"
#include "belfry/towers/metrics.h"

namespace belfry {
namespace train_test {

using testing::AllOf;
using testing::HasSubstr;
using testing::Not;

TEST_F(TrainTest, DividesBatchesAsItIsTold) {
  const TrainResult result =
      run_train({"--devices=cpu:3", "--uneven=weight", "--tower_weights=2,1,1", "--batch_size=4",
                 "--json=" + json_.string()});
  EXPECT_EQ(result.code, 0) << result.error;
  for (const char* part : {"6 + 3 + 3 per device, 12 in all", "6 steps per epoch",
                           "the last batch of an epoch has 10 examples: 5 + 3 + 2"})
    EXPECT_THAT(result.out, HasSubstr(part)) << part;
  EXPECT_EQ(report()["uneven"], "weight");
  EXPECT_EQ(report()["tower_weights"], (nlohmann::json{2, 1, 1}));
  EXPECT_EQ(report()["steps"], 12);
  EXPECT_EQ(report()["replicas_equal"], true);
  const TrainResult refused = run_train({"--devices=cpu:3", "--uneven=error", "--batch_size=4"});
  EXPECT_EQ(refused.code, 2);
  EXPECT_THAT(refused.error,
              AllOf(HasSubstr("error: --uneven=error: the"), HasSubstr("leave 10 over")));
  EXPECT_EQ(run_train({"--uneven=pad", "--batch_size=500"}).code, 0);
}

TEST_F(TrainTest, PrintsHeaderProgressAndTableAndWritesJson) {
  const TrainResult result =
      run_train({"--devices=cpu:2", "--threads=1", "--json=" + json_.string()});
  EXPECT_EQ(result.code, 0) << result.error;
  for (const char* part :
       {"program: replicated, collective on CPU:0 CPU:1", "8 per device, 16 in all",
        "4 steps per epoch", "leaves out 6 examples", "a smooth function", "step 1/8", "step 8/8",
        "test  loss", "params_hash", "replicas_equal"})
    EXPECT_THAT(result.out, HasSubstr(part)) << part;
  const nlohmann::json json = report();
  EXPECT_EQ(json["program"], "program");
  EXPECT_EQ(json["trainer"], "replicated");
  EXPECT_EQ(json["allreduce"], "collective");
  EXPECT_EQ(json["canonical"], true);
  EXPECT_EQ(json["gradient_repacking"], 0);
  EXPECT_EQ(json["small_tensors_kb"], 0);
  EXPECT_GT(json["bucket_mb"], 0);
  EXPECT_EQ(json["devices"].size(), 2u);
  EXPECT_EQ(json["batch_size"], 8);
  EXPECT_EQ(json["seed"], 1);
  EXPECT_EQ(json["threads"], 1);
  EXPECT_EQ(json["steps"], 8);
  EXPECT_EQ(json["epochs"], 2);
  EXPECT_GT(json["seconds"], 0);
  EXPECT_GT(json["examples_per_second"], 0);
  EXPECT_GT(json["loss"], 0);
  EXPECT_FALSE(json.contains("validation_accuracy"));  // the model measures none
  EXPECT_EQ(std::string(json["params_hash"]).size(), 16u);
  EXPECT_EQ(std::string(json["state_hash"]).size(), 16u);
  EXPECT_EQ(json["replicas_equal"], true);
  EXPECT_EQ(json["peak_bytes"].size(), 2u);
  for (const auto& [device, bytes] : json["peak_bytes"].items()) EXPECT_GT(bytes, 0) << device;
}

TEST_F(TrainTest, ReportsTheTestAccuracyOfModelsThatMeasureIt) {
  Recipe recipe = small_recipe();
  recipe.model = [](Tower& tower, Output x, Output y) {
    tower.metric("accuracy", reduce_mean(x) * 0 + 0.75);
    return smooth_model(tower, x, y);
  };
  EXPECT_EQ(run_train({"--json=" + json_.string()}, recipe).code, 0);
  EXPECT_EQ(report()["validation_accuracy"], 0.75);
}

TEST_F(TrainTest, GivesTheSameHashesInTwoProcessesAndModes) {
  std::vector<std::string> hashes;
  for (const char* trainer : {"--trainer=replicated", "--trainer=parameter_server"}) {
    EXPECT_EQ(
        run_train({trainer, "--devices=cpu:2", "--max_steps=3", "--json=" + json_.string()}).code,
        0);
    EXPECT_EQ(report()["steps"], 3);
    EXPECT_EQ(report()["epochs"], 0);
    hashes.push_back(report()["params_hash"]);
  }
  EXPECT_EQ(hashes[0], hashes[1]);
}

TEST_F(TrainTest, SaysWhetherTheSumIsCanonicalForSoManyDevices) {
  const auto canonical = [&](std::vector<std::string> flags) {
    flags.push_back("--max_steps=1");
    flags.push_back("--json=" + json_.string());
    EXPECT_EQ(run_train(flags).code, 0);
    return report()["canonical"];
  };
  EXPECT_EQ(canonical({"--devices=cpu:4", "--allreduce=halving_doubling"}), true);
  EXPECT_EQ(canonical({"--devices=cpu:3", "--allreduce=halving_doubling"}), false);
  EXPECT_EQ(canonical({"--devices=cpu:2", "--allreduce=collective:1k:ring"}), false);
  EXPECT_EQ(canonical({"--devices=cpu:3", "--allreduce=shuffle"}), true);
  EXPECT_EQ(canonical({"--devices=cpu:3", "--trainer=parameter_server"}), true);
  EXPECT_EQ(canonical({"--devices=cpu:1"}), true) << "nothing is combined";
  EXPECT_EQ(canonical({"--devices=cpu:1", "--trainer=replicated", "--allreduce=ring"}), true);
}

TEST_F(TrainTest, PacksSmallTensorsWithoutChangingTheResult) {
  std::vector<std::string> hashes;
  for (const char* kib : {"0", "1", "1000"}) {
    EXPECT_EQ(run_train({"--devices=cpu:3", std::string("--small_tensors_kb=") + kib,
                         "--json=" + json_.string()})
                  .code,
              0);
    hashes.push_back(report()["state_hash"]);
  }
  EXPECT_EQ(hashes[0], hashes[1]);
  EXPECT_EQ(hashes[0], hashes[2]);
}

TEST_F(TrainTest, TrainsOnNamedDevices) {
  EXPECT_EQ(run_train({"--devices=/cpu:1", "--json=" + json_.string()}).code, 0);
  EXPECT_EQ(report()["devices"], nlohmann::json{"/job:localhost/replica:0/task:0/device:CPU:1"});
  EXPECT_EQ(report()["trainer"], "simple");
  EXPECT_TRUE(report()["allreduce"].is_null());
}

// The recipe trains for 2 epochs of 4 steps: 70 examples, 8 on each of two devices.
TEST_F(TrainTest, SchedulesTheRecipesRateByFlags) {
  const auto hash = [&](std::vector<std::string> flags, const Recipe& recipe = small_recipe()) {
    flags.push_back("--json=" + json_.string());
    EXPECT_EQ(run_train(flags, recipe).code, 0);
    return report()["params_hash"].get<std::string>();
  };
  const auto by_hand = [&](double (*rate)(const StepInfo&)) {
    Recipe recipe = small_recipe();
    recipe.optimizer = sgd(rate);
    return hash({}, recipe);
  };
  EXPECT_EQ(hash({"--lr_schedule=step:1@0.5"}),
            by_hand([](const StepInfo& at) { return at.step < 4 ? 0.1 : 0.05; }));
  EXPECT_EQ(hash({"--lr_schedule=linear:0.5", "--learning_rate=1"}),
            by_hand([](const StepInfo& at) { return 1 - 0.0625 * at.step; }));
  EXPECT_EQ(hash({"--warmup_steps=4"}),
            by_hand([](const StepInfo& at) { return 0.1 * (std::min(at.step + 1, 4L) / 4.0); }));
  EXPECT_EQ(hash({"--lr_schedule=constant"}), hash({}));
}

// The run has 8 steps, and its first part makes 4.
TEST_F(TrainTest, GoesOnWithTheRatesOfARunThatDidNotStop) {
  const std::string checkpoint = path(".checkpoint");
  const auto run = [&](std::vector<std::string> flags, const char* schedule,
                       const Recipe& recipe = small_recipe()) {
    if (*schedule) flags.push_back(cat("--lr_schedule=", schedule));
    flags.push_back("--json=" + json_.string());
    const TrainResult result = run_train(flags, recipe);
    EXPECT_EQ(result.code, 0) << result.error;
    return result.error;
  };
  const std::string save = "--run_dir=" + checkpoint, go_on = "--resume=" + checkpoint;
  run({}, "cosine:0.01@2");
  const nlohmann::json whole = report()["state_hash"];
  run({save, "--max_steps=4"}, "cosine:0.01@2");
  EXPECT_THAT(run({go_on}, "cosine:0.01@2"), Not(HasSubstr("not the same bits")));
  EXPECT_EQ(report()["state_hash"], whole);
  EXPECT_THAT(run({go_on}, "cosine:0.01@3"),
              HasSubstr("the learning rate was cosine:0.01@2 from 0.1 and is now cosine:0.01@3"));
  run({save, "--resume=never", "--overwrite", "--max_steps=4"}, "cosine");
  EXPECT_THAT(run({go_on}, "cosine"),
              HasSubstr("not the same bits because the learning rate follows the length of the "
                        "run, which was 4 steps and is now 8"));
  // A function is asked only about steps of the run.
  Recipe recipe = small_recipe();
  recipe.optimizer = sgd([rates = std::vector<double>(8, 0.1)](const StepInfo& info) {
    return rates.at(static_cast<std::size_t>(info.step));
  });
  run({save, "--resume=never", "--overwrite", "--max_steps=4"}, "", recipe);
  EXPECT_THAT(run({go_on}, "", recipe), Not(HasSubstr("not the same bits")));
  std::filesystem::remove_all(checkpoint);
}

TEST_F(TrainTest, ReplacesNoScheduleOfTheRecipeUnasked) {
  Recipe recipe = small_recipe();
  recipe.optimizer = sgd([](const StepInfo&) { return 0.1; });
  const TrainResult refused = run_train({"--lr_schedule=cosine"}, recipe);
  EXPECT_EQ(refused.code, 2);
  EXPECT_THAT(refused.error, AllOf(HasSubstr("--lr_schedule=cosine:0"), HasSubstr("a function"),
                                   HasSubstr("--learning_rate")));
  EXPECT_EQ(run_train({"--lr_schedule=cosine", "--learning_rate=0.1"}, recipe).code, 0);
  EXPECT_EQ(run_train({"--warmup_steps=3", "--json=" + json_.string()}, recipe).code, 0);
}

TEST_F(TrainTest, EndsEarlyWhenItGetsNoBetter) {
  const TrainResult ended = run_train({"--epochs=9", "--early_stop=validation_loss:max:2",
                                       "--learning_rate=0.01", "--json=" + json_.string()});
  EXPECT_EQ(ended.code, 0) << ended.error;
  EXPECT_EQ(report()["epochs"], 3);
  EXPECT_THAT(ended.out, HasSubstr("early stop: validation_loss was not above"));
  const TrainResult refused = run_train({"--early_stop=validation_lss:min:2"});
  EXPECT_EQ(refused.code, 2);
  EXPECT_THAT(refused.error, AllOf(HasSubstr("error: --early_stop=validation_lss:min:2: there is"),
                                   HasSubstr("did you mean 'validation_loss'? (there are ")));
}

// The last evaluation happens twice: in the run that was saved before it, and in the run that goes
// on from there.
TEST_F(TrainTest, EndsEarlyAtTheSameStepWhenItGoesOn) {
  const auto run = [&](std::vector<std::string> flags) {
    for (const char* flag : {"--epochs=9", "--early_stop=validation_loss:max:2",
                             "--learning_rate=0.01", "--overwrite"})
      flags.push_back(flag);
    flags.push_back("--run_dir=" + path(".checkpoint"));
    flags.push_back("--json=" + json_.string());
    const TrainResult result = run_train(flags);
    EXPECT_EQ(result.code, 0) << result.error;
    return report()["state_hash"].get<std::string>();
  };
  const std::string whole = run({});
  EXPECT_EQ(report()["steps"], 12);
  for (const char* cut : {"--max_steps=4", "--max_steps=8", "--max_steps=10", "--max_steps=12"}) {
    run({cut, "--resume=never"});
    EXPECT_EQ(run({}), whole) << cut;
    EXPECT_EQ(report()["steps"], 12) << cut;
  }
  std::filesystem::remove_all(path(".checkpoint"));
}

TEST_F(TrainTest, ReplacesTheRecipesScheduleByTheFlag) {
  Recipe recipe = small_recipe();
  recipe.optimizer = sgd([](const StepInfo&) { return 0.1; });
  EXPECT_EQ(run_train({"--json=" + json_.string()}, recipe).code, 0);
  const std::string scheduled = report()["params_hash"];
  EXPECT_EQ(run_train({"--learning_rate=0.1", "--json=" + json_.string()}, recipe).code, 0);
  EXPECT_EQ(report()["params_hash"], scheduled);
  EXPECT_EQ(run_train({"--learning_rate=0.2", "--json=" + json_.string()}, recipe).code, 0);
  EXPECT_NE(report()["params_hash"], scheduled);
}

TEST_F(TrainTest, TakesWeightDecayAndTheLargestNormFromItsFlags) {
  const auto run = [&](std::vector<std::string> flags, const Optimizer& optimizer) {
    Recipe recipe = small_recipe();
    recipe.optimizer = optimizer;
    flags.push_back("--json=" + json_.string());
    EXPECT_EQ(run_train(flags, recipe).code, 0);
    return report();
  };
  const Optimizer decaying = sgd(0.1, {.weight_decay = 0.25});
  const nlohmann::json plain = run({}, sgd(0.1)), decayed = run({}, decaying);
  EXPECT_EQ(plain["weight_decay"], 0);
  EXPECT_EQ(decayed["weight_decay"], 0.25);
  EXPECT_NE(decayed["params_hash"], plain["params_hash"]);
  const nlohmann::json by_flag = run({"--weight_decay=0.25"}, sgd(0.1));
  EXPECT_EQ(by_flag["weight_decay"], 0.25);
  EXPECT_EQ(by_flag["params_hash"], decayed["params_hash"]);
  EXPECT_EQ(run({"--weight_decay=0"}, decaying)["params_hash"], plain["params_hash"]);
  const nlohmann::json clipped = run({"--clip_norm=0.125"}, sgd(0.1));
  EXPECT_EQ(clipped["clip_norm"], 0.125);
  EXPECT_NE(clipped["params_hash"], plain["params_hash"]);
  EXPECT_EQ(run({"--clip_norm=0"}, sgd(0.1))["params_hash"], plain["params_hash"]);
  EXPECT_EQ(run({"--gradient_accumulation_steps=2"}, sgd(0.1))["gradient_accumulation_steps"], 2);
  EXPECT_TRUE(plain["tokens_per_second"].is_null() && plain["mfu"].is_null());
  EXPECT_EQ(run({"--recompute=fc0"}, sgd(0.1))["params_hash"], plain["params_hash"]);
  Recipe own_recipe = small_recipe();
  own_recipe.optimizer =
      Optimizer({.name = "Own", .rate = 0.5, .update = [](const Optimizer::Update& u) -> Node& {
                   return u.gradient.node();
                 }});
  const TrainResult refused = run_train({"--weight_decay=0.25"}, own_recipe);
  EXPECT_EQ(refused.code, 2);
  EXPECT_THAT(refused.error, AllOf(HasSubstr("--weight_decay=0.25: the optimizer Own takes no "),
                                   HasSubstr("lars do")));
}

TEST_F(TrainTest, ShowsTheNormOfGradientsIfItIsAsked) {
  const auto run = [&](std::vector<std::string> flags) {
    flags.push_back("--json=" + json_.string());
    const TrainResult result = run_train(flags, small_recipe());
    EXPECT_EQ(result.code, 0) << result.error;
    return std::pair(result.out, report()["params_hash"]);
  };
  const auto [plain, hash] = run({});
  const auto [shown, same] = run({"--log_gradient_norms"});
  EXPECT_EQ(same, hash);
  EXPECT_THAT(plain, testing::Not(HasSubstr("gradient_norm")));
  EXPECT_THAT(shown, testing::ContainsRegex("step [^\n]*  gradient_norm [0-9.e-]+  "));
}

TEST_F(TrainTest, TakesAnOptimizerByItsNameWithItsOptions) {
  const auto run = [&](std::vector<std::string> flags, const Optimizer& optimizer) {
    Recipe recipe = small_recipe();
    recipe.optimizer = optimizer;
    flags.push_back("--json=" + json_.string());
    EXPECT_EQ(run_train(flags, recipe).code, 0);
    return report();
  };
  const auto expect_same = [&](const std::vector<std::string>& flags, const Optimizer& optimizer) {
    SCOPED_TRACE(join(flags));
    const nlohmann::json named = run(flags, sgd(0.1)), built = run({}, optimizer);
    EXPECT_EQ(named["state_hash"], built["state_hash"]);
    EXPECT_EQ(named["optimizer"], built["optimizer"]);
    EXPECT_EQ(named["optimizer_options"], built["optimizer_options"]);
    EXPECT_EQ(named["learning_rate"], built["learning_rate"]);
  };
  for (const std::string& name : optimizer_names())
    if (name != "sgd") expect_same({"--optimizer=" + name}, make_optimizer(name));
  expect_same({"--optimizer=lion", "--beta1=0.5", "--weight_decay=0.1", "--learning_rate=0.01"},
              lion(0.01, {.beta1 = 0.5, .weight_decay = 0.1}));
  expect_same({"--optimizer=momentum", "--nesterov=1", "--weight_decay=0.1",
               "--weight_decay_form=decoupled"},
              momentum(0.01, {.nesterov = true, .weight_decay = 0.1})
                  .with_decay_form(DecayForm::kDecoupled));
  // The program's own optimizer keeps its rate and its other options.
  const Optimizer own = adam({.rate = 0.2, .beta1 = 0.5});
  EXPECT_EQ(run({"--optimizer=adam", "--beta2=0.9"}, own)["state_hash"],
            run({}, own.with_option("beta2", 0.9))["state_hash"]);
  EXPECT_EQ(run({"--beta2=0.9"}, own)["optimizer_options"]["beta1"], 0.5);
}

TEST_F(TrainTest, RefusesOptionsThatTheOptimizerDoesNotHave) {
  const std::pair<std::vector<std::string>, const char*> refused[] = {
      {{"--momentum=0.5"}, "--momentum=0.5: the optimizer SGD has no option momentum"},
      {{"--optimizer=lion", "--epsilon=0.1"},
       "--epsilon=0.1: the optimizer Lion has no option epsilon; it has beta1, beta2"},
      {{"--optimizer=lars", "--weight_decay_form=decoupled"},
       "--weight_decay_form=decoupled: the optimizer LARS has one form of weight decay"},
      {{"--optimizer=adamx"}, "there is no optimizer 'adamx', but there are sgd, momentum"},
      {{"--optimizer=adam", "--beta1=1"},
       "--beta1=1: the option beta1 of the optimizer Adam must be a number >= 0 and below 1"},
      {{"--optimizer=adam", "--epsilon=0"},
       "--epsilon=0: the option epsilon of the optimizer Adam must be a finite number > 0"},
      {{"--optimizer=adam", "--epsilon=nan"}, "--epsilon=nan"},
      {{"--optimizer=adam", "--weight_decay_form=both"}, "is neither coupled nor decoupled"}};
  for (const auto& [flags, message] : refused) {
    const TrainResult result = run_train(flags);
    EXPECT_EQ(result.code, 2) << message;
    EXPECT_THAT(result.error, HasSubstr(message));
  }
}

TEST_F(TrainTest, NamesAScopeThatTheModelLacksAndThoseThatItHas) {
  for (const char* const other : {"--max_steps=1", "--dry_run", "--check_equivalence=1"}) {
    const TrainResult refused = run_train({"--recompute=fc0,fc7", other});
    EXPECT_EQ(refused.code, 2) << other;
    EXPECT_THAT(refused.error,
                AllOf(HasSubstr("error: --recompute=fc7: the model has no nodes in such a scope"),
                      HasSubstr("the outermost are fc0, fc1")))
        << other;
  }
}

TEST_F(TrainTest, TrainsInOrderAndFreeAndSaysWhich) {
  const std::string json = "--json=" + json_.string();
  for (const std::string async : {"ordered", "free"}) {
    const TrainResult result =
        run_train({"--trainer=async", "--async=" + async, "--devices=cpu:2", json});
    EXPECT_EQ(result.code, 0) << result.error;
    EXPECT_THAT(result.out, AllOf(HasSubstr("program: async, " + async + " on CPU:0 CPU:1"),
                                  HasSubstr("step 8/8")));
    EXPECT_EQ(report()["trainer"], "async");
    EXPECT_EQ(report()["async"], async);
    EXPECT_TRUE(report()["allreduce"].is_null());
    EXPECT_EQ(report()["steps"], 8);
    EXPECT_EQ(report()["epochs"], 2);
    EXPECT_EQ(report()["replicas_equal"], true);
  }
}

TEST(Train, PrintsHelpAndTrainsNothing) {
  const TrainResult result = run_train({"--help"});
  EXPECT_EQ(result.code, 0);
  EXPECT_THAT(result.out, AllOf(HasSubstr("--batch_size"), Not(HasSubstr("--data_dir"))));
}

TEST(Train, ExitsWith2ForMistakesOnTheCommandLineInOneLine) {
  for (const char* flag :
       {"--batchsize=3", "--devices=gpu:2", "--learning_rate=nan", "--trainer=simple",
        "--data_dir=/d", "--allreduce=colocate", "--epochs=x", "--bucket_mb=x"}) {
    const TrainResult result = run_train({flag});
    EXPECT_EQ(result.code, 2) << flag;
    EXPECT_THAT(result.error, testing::StartsWith("error: ")) << flag;
    EXPECT_EQ(std::ranges::count(result.error, '\n'), 1) << result.error;
  }
}

TEST(Train, ExitsWith2ForMoreSamplesThanTheDataHave) {
  for (const char* flag : {"--batch_size=1000", "--global_batch_size=1000",
                           "--gradient_accumulation_steps=99999999"}) {
    const TrainResult result = run_train({"--devices=cpu:2", flag});
    EXPECT_EQ(result.code, 2) << flag;
    EXPECT_THAT(result.error, testing::StartsWith(cat("error: ", flag)));
  }
}

// The model is known only once the flags are read.
TEST(Train, ExitsWith2ForAFlagThatDoesNotFitTheModel) {
  const TrainResult packed = run_train({"--gradient_repacking=4"});
  EXPECT_EQ(packed.code, 2);
  EXPECT_THAT(packed.error, testing::StartsWith("error: --gradient_repacking=4: "));
}

TEST(Train, ExitsWith1ForAllOtherErrorsInOneLine) {
  Recipe recipe = small_recipe();
  recipe.optimizer = sgd(-1);
  EXPECT_EQ(run_train({}, recipe).code, 1);
  recipe = small_recipe();
  recipe.data = [](bool) -> std::unique_ptr<Dataset> { throw IoError("bad\nfile"); };
  const TrainResult result = run_train({}, recipe);
  EXPECT_EQ(result.code, 1);
  EXPECT_EQ(result.error, "error: bad file\n");
  EXPECT_EQ(run_train({}, {}).code, 1);
  EXPECT_EQ(run_train({"--devices=cpu:1", "--learning_rate=0.1"},
                      {.model = smooth_model, .data = small_data})
                .code,
            1);
}

TEST(Train, HonoursMoreThreadsThanCoresWithAWarning) {
  const TrainResult result = run_train({"--threads=64", "--max_steps=2", "--json=/dev/stdout"});
  EXPECT_EQ(result.code, 0);
  EXPECT_EQ(nlohmann::json::parse(result.out)["threads"], 64);
  EXPECT_THAT(result.error, HasSubstr("64 threads"));
}

// Throws where it is told to.
struct ThrowsAt final : Callback {
  explicit ThrowsAt(std::string where) : hook(std::move(where)) {}
  std::string name() const override { return "throws"; }
  JsonValue state() const override { return act("state"), JsonValue(1); }
  std::vector<std::string> metrics() const override {
    return act("metrics"), std::vector<std::string>();
  }
  void act(std::string_view where) const {
    if (where == hook) throw std::runtime_error("it has failed");
  }
  std::string hook;
};

TEST_F(TrainTest, NamesThePartOfTheProgramThatThrew) {
  const auto fails = [](auto&&...) -> double { throw std::runtime_error("it has failed"); };
  Recipe data = small_recipe(), model = small_recipe(), rate = small_recipe();
  data.data = [&](const RunDirs&, bool train) { return fails(), small_data(train); };
  model.model = [&](Tower&, Output x, Output) { return fails(), x; };
  rate.optimizer = sgd([&](const StepInfo&) { return fails(); });
  Recipe state = small_recipe(), metrics = small_recipe();
  state.callbacks = {std::make_shared<ThrowsAt>("state")};
  metrics.callbacks = {std::make_shared<ThrowsAt>("metrics")};
  const std::string run = path(".run");
  for (const auto& [recipe, part] : {std::pair(&data, "the data function of the recipe"),
                                     {&model, "the tower function"},
                                     {&rate, "the function of the learning rate"},
                                     {&state, "ThrowsAt::state"},
                                     {&metrics, "ThrowsAt::metrics"}}) {
    const TrainResult failed = run_train({"--devices=cpu:2", "--run_dir=" + run}, *recipe);
    EXPECT_EQ(failed.code, 1);
    EXPECT_THAT(failed.error, AllOf(HasSubstr("it has failed"), HasSubstr(part)));
    std::filesystem::remove_all(run);
  }
}

}  // namespace train_test
}  // namespace belfry
