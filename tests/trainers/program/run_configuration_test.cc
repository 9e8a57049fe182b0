// The configuration that a run directory keeps.
#include <filesystem>
#include <fstream>

#include <unistd.h>

#include "belfry/framework/base/text.h"
#include "belfry/tests/trainers/program/run_support.h"
#include "belfry/trainers/program/training_run.h"

namespace belfry {
namespace run_configuration_test {

using testing::AllOf;
using testing::HasSubstr;
using testing::Not;

TEST_F(TrainingRunTest, ItsConfigurationGivesTheSameRunAgain) {
  const std::vector<std::string> flags{"--devices=cpu:2", "--batch_size=4", "--seed=7",
                                       "--learning_rate=0.05", "--fuse=0"};
  EXPECT_EQ(start(flags).code, 0);
  const std::string hash = report()["state_hash"];
  std::vector<std::string> printing = flags;
  printing.insert(printing.end(), {"--print_config", "--run_dir=" + directory_});
  auto kept = nlohmann::json::parse(text_in(directory_ + "/config.json"));
  EXPECT_EQ(kept["shards"], report()["shards"]);
  kept.erase("shards");  // follows from the model, too, which printing does not build
  EXPECT_EQ(nlohmann::json::parse(run_train(printing).out), kept);
  EXPECT_EQ(run_train({"--config=" + directory_ + "/config.json", "--json=" + json_.string()}).code,
            0);
  EXPECT_EQ(report()["state_hash"], hash);
  // The batch is that of all devices.
  EXPECT_EQ(run_train({"--config=" + directory_ + "/config.json", "--devices=cpu:1",
                       "--json=" + json_.string()})
                .code,
            0);
  EXPECT_EQ(report()["state_hash"], hash);
  EXPECT_EQ(
      run_train({"--config", directory_ + "/config.json", "--seed=8", "--json=" + json_.string()})
          .code,
      0);
  EXPECT_EQ(report()["seed"], 8);
  EXPECT_EQ(run_train({"--config=" + directory_ + "/config.json", "--global_batch_size=4",
                       "--json=" + json_.string()})
                .code,
            0);
  EXPECT_EQ(report()["global_batch_size"], 4);
  for (const auto& [text, why] :
       {std::pair("{\"seeds\": 1}", "--seed"),
        {"{\"seed\": \"x\"}", "--seed=x is not"},
        {"{\"seed\": [1]}", "no text, number, true or false"},
        {"{\"fuse_updates\": 0}", "--fuse_updates=0: this flag was removed"},
        {"{\"num_gpus\": \"x\"}", "--num_gpus=x"},
        {"{\"seed\": 1, \"tf_random_seed\": 2}", "contradict each other"},
        {"[1]", "config"},
        {"{", "line 1"}}) {
    std::ofstream(path(".bad")) << text;
    const TrainResult bad = run_train({"--config=" + path(".bad")});
    EXPECT_EQ(bad.code, 2) << text;
    EXPECT_THAT(bad.error, HasSubstr(why));
    EXPECT_THAT(bad.error, HasSubstr("--config=" + path(".bad") + ": "));
  }
  // The mistake is not in the file.
  std::ofstream(path(".bad")) << "{\"seed\": 1}";
  for (const std::string own : {"--seed=x", "--seeds=1"})
    EXPECT_THAT(run_train({"--config=" + path(".bad"), own}).error, Not(HasSubstr("--config")));
  std::filesystem::remove(path(".bad"));
  EXPECT_EQ(run_train({"--config=" + path(".none")}).code, 2);
}

// They decide its bits.
TEST_F(TrainingRunTest, ItsConfigurationKeepsTheShards) {
  EXPECT_EQ(start({"--devices=cpu:4", "--global_batch_size=16"}).code, 0);
  const std::string hash = report()["state_hash"];
  const std::string config = "--config=" + directory_ + "/config.json",
                    json = "--json=" + json_.string();
  EXPECT_EQ(report()["shards"], 4);
  for (const std::string devices : {"--devices=cpu:1", "--devices=cpu:2"}) {
    const TrainResult again = run_train({config, devices, json});
    EXPECT_EQ(again.code, 0) << again.error;
    EXPECT_EQ(report()["shards"], 4) << devices;
    EXPECT_EQ(report()["state_hash"], hash) << devices;
    EXPECT_THAT(again.error, Not(HasSubstr("shards")));
  }
  // The command line wins.
  EXPECT_EQ(run_train({config, "--devices=cpu:2", "--shards=8", json}).code, 0);
  EXPECT_EQ(report()["shards"], 8);
  // More devices than shards.
  const TrainResult more = run_train({config, "--devices=cpu:8", json});
  EXPECT_EQ(more.code, 0) << more.error;
  EXPECT_EQ(report()["shards"], 8);
  EXPECT_THAT(more.error,
              AllOf(HasSubstr(config + ": --shards=4 of the global batch cannot be divided among 8 "
                                       "devices alike"),
                    HasSubstr("the file's number is left out, so this run has other bits")));
  const TrainResult refused = run_train({config, "--devices=cpu:8", "--shards=4", json});
  EXPECT_EQ(refused.code, 2);
  EXPECT_THAT(refused.error, HasSubstr("error: --shards=4 of the global batch"));
}

TEST_F(TrainingRunTest, ItsConfigurationSaysWhatDefaultsAre) {
  EXPECT_EQ(start({"--devices=cpu:2", "--global_batch_size=8", "--keep=2"}).code, 0);
  const std::string file = directory_ + "/config.json";
  const auto config = nlohmann::json::parse(text_in(file));
  EXPECT_EQ(config["chosen"]["learning_rate"], 0.1);
  EXPECT_EQ(config["precision"], "f32");
  EXPECT_EQ(config["uneven"], "drop");
  EXPECT_EQ(config["max_steps"], 0);
  EXPECT_EQ(config["keep"], 2);
  EXPECT_EQ(config["save_every_epochs"], 1);
  EXPECT_EQ(config["on_save_error"], "retry");
  EXPECT_EQ(config["chosen"]["trainer"], "replicated");
  EXPECT_EQ(config["chosen"]["program"], "program");
  EXPECT_EQ(config["chosen"]["allreduce"], "collective");
  EXPECT_EQ(config["chosen"]["bucket_mb"], 4);
  EXPECT_EQ(config["chosen"]["optimizer"], "SGD");
  const std::string hash = summary()["state_hash"];

  // Runs again without a run directory, on other devices, and by other strategies.
  const auto again = [&](std::vector<std::string> flags) {
    flags.insert(flags.end(), {"--config=" + file, "--json=" + json_.string()});
    return run_train(std::move(flags));
  };
  const TrainResult plain = again({});
  EXPECT_EQ(plain.code, 0);
  EXPECT_THAT(plain.error, HasSubstr("without --run_dir there is no use for keep, "));
  EXPECT_EQ(report()["state_hash"], hash);
  for (const char* flag : {"--trainer=parameter_server", "--allreduce=naive", "--bucket_mb=0"}) {
    EXPECT_EQ(again({flag}).code, 0) << flag;
    EXPECT_EQ(report()["state_hash"], hash) << flag;
  }
  EXPECT_EQ(again({"--devices=cpu:1"}).code, 0);
  EXPECT_EQ(report()["trainer"], "simple");
  EXPECT_EQ(again({"--lr_schedule=linear"}).code, 0);
  EXPECT_NE(report()["state_hash"], hash);
  EXPECT_EQ(again({"--optimizer=lion"}).code, 0);
  EXPECT_EQ(report()["learning_rate"], "1e-04") << "its usual rate, not that of sgd";
  // Runs again in a run directory.
  const std::string second = path(".second");
  EXPECT_EQ(run_train({"--config=" + file, "--run_dir=" + second}).code, 0);
  EXPECT_EQ(text_in(second + "/config.json"), text_in(file));
  std::filesystem::remove_all(second);
}

}  // namespace run_configuration_test
}  // namespace belfry
