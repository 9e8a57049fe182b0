// The hashes in the files of a run, and copies of variables that must be equal.
#include "belfry/framework/base/text.h"
#include "belfry/tests/framework/base/memory_file_system.h"
#include "belfry/tests/trainers/program/run_support.h"
#include "belfry/trainers/core/trainer.h"
#include "belfry/trainers/runs/hash_log.h"

namespace belfry {
namespace run_hash_test {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsSupersetOf;

class RunHashTest : public TrainingRunTest {};

TEST_F(RunHashTest, NotesHashesByWhichAFlippedBitIsFound) {
  const std::vector<std::string> flags{"--devices=cpu:2", "--batch_size=2", "--hash_every=1"};
  const auto run = [&](const std::string& name, const Recipe& recipe) {
    std::vector<std::string> all = flags;
    all.push_back("--run_dir=" + path(name.c_str()));
    return run_train(all, recipe).code;
  };
  EXPECT_EQ(run(".a", small_recipe()), 0);
  const auto flip = [](Trainer& trainer) {
    for (const TowerRecord& tower : trainer.built().nodes().towers) {
      Tensor value = trainer.session().read(tower.trainables[1]);
      value.mutable_raw()[5] ^= std::byte{1};
      trainer.session().write(tower.trainables[1], value);
    }
  };
  EXPECT_EQ(run(".b", recipe_that(16, flip)), 0);
  EXPECT_EQ(run(".c", recipe_that_fails_at(20)), 1);
  EXPECT_EQ(run(".c", small_recipe()), 0);
  const Parting parting = find_parting(path(".a"), path(".b"));
  EXPECT_EQ(parting.equal, 16);
  EXPECT_EQ(parting.differs, 17);
  EXPECT_THAT(parting.variables,
              IsSupersetOf({std::string("the gradient of fc0/W"), std::string("fc0/b")}));
  const Parting same = find_parting(path(".a"), path(".c"));
  EXPECT_FALSE(same.differs);
  EXPECT_EQ(same.compared, 34);
  EXPECT_THROW(find_parting(path(".a"), path(".none")), NotFoundError);
  // A run that resumes from another's checkpoint has its own files.
  std::vector<std::string> all = flags;
  all.insert(all.end(),
             {"--run_dir=" + path(".d"), "--resume=" + path(".a") + "/checkpoints/step-00000017"});
  const TrainResult on = run_train(all);
  EXPECT_EQ(on.code, 0);
  EXPECT_THAT(on.error, testing::Not(HasSubstr("lost")));
  EXPECT_EQ(find_parting(path(".a"), path(".d")).compared, 17);
  for (const char* name : {".a", ".b", ".c", ".d"}) std::filesystem::remove_all(path(name));
}

TEST_F(RunHashTest, StepsThatAreComputedAgainAreCompared) {
  const std::vector<std::string> flags{"--devices=cpu:2", "--batch_size=4", "--max_steps=8",
                                       "--shards=2"};
  const auto train = [&](const Recipe& recipe) {
    std::filesystem::remove_all(directory_);
    std::vector<std::string> all = flags;
    all.insert(all.end(), {"--hash_every=1", "--save_every_steps=3"});
    return start(all, recipe).code;
  };
  const auto replay = [&](const std::string& from, int step) {
    std::vector<std::string> all = flags;
    all.insert(all.end(), {from, "--replay=" + directory_, cat("--replay_step=", step)});
    return run_train(all);
  };
  const std::string from_6 = "--resume=" + directory_ + "/checkpoints/step-00000006";
  EXPECT_EQ(train(small_recipe()), 0);
  EXPECT_THAT(text_in(directory_ + "/" + kHashesFile),
              HasSubstr("\"contributions\":[{\"tower\":0,\"rank\":0,\"host\":\"\",\"gradients\":{"
                        "\"fc0/W\":\""));
  for (const auto& [from, steps] : {std::pair(from_6, 2), {std::string("--resume=never"), 8}}) {
    const TrainResult done = replay(from, 8);
    EXPECT_EQ(done.code, 0) << done.error;
    EXPECT_THAT(done.out, HasSubstr(cat("equal: ", steps, " steps that ", directory_,
                                        " has noted, the last is 8: the gradients of 2 towers, "
                                        "combined gradients, variables and slots")));
  }
  const auto flips = [](Trainer& trainer) {
    for (const TowerRecord& tower : trainer.built().nodes().towers) {
      Tensor value = trainer.session().read(tower.trainables[1]);
      value.mutable_raw()[5] ^= std::byte{1};
      trainer.session().write(tower.trainables[1], value);
    }
  };
  EXPECT_EQ(train(recipe_that(6, flips)), 0);
  const TrainResult found = replay(from_6, 8);
  EXPECT_EQ(found.code, 76) << found.out;
  EXPECT_THAT(found.error, testing::AllOf(HasSubstr("step 7: rank 0 contributed other gradients "
                                                    "(tower 0): of "),
                                          HasSubstr("(tower 1)"),
                                          HasSubstr("the first op that computed otherwise is ")));
  EXPECT_EQ(replay("--resume=never", 6).code, 0);
  EXPECT_THAT(replay(from_6, 6).error, HasSubstr("has noted no step after 6 up to 6"));
  std::vector<std::string> otherwise = flags;
  otherwise.insert(otherwise.end(), {from_6, "--replay=" + directory_, "--replay_step=8"});
  otherwise.push_back("--shards=4");
  EXPECT_THAT(run_train(otherwise).error,
              HasSubstr("cannot be computed again with the same bits: the number of shards "
                        "(--shards) was"));
}

// In a run whose processes update parts, no process has the whole of a gradient.
TEST_F(RunHashTest, ComparesVariablesAloneWhereOneRunHasNoGradients) {
  const std::vector<std::string> flags{"--devices=cpu:1", "--batch_size=4", "--hash_every=8",
                                       "--run_dir=" + path(".e")};
  EXPECT_EQ(run_train(flags, small_recipe()).code, 0);
  const auto without_gradients = [&](const char* name, const std::string& replaced) {
    std::ifstream all(path(".e") + "/" + kHashesFile);
    std::ofstream bare(path(name));
    for (std::string line; std::getline(all, line);) {
      const std::size_t begin = line.rfind("\"gradients\":{") + 13;
      line.erase(begin, line.find('}', begin) - begin);
      if (const std::size_t at = line.rfind(replaced); !replaced.empty() && at != line.npos)
        line[at + replaced.size()] ^= 1;
      bare << line << "\n";
    }
    return path(name);
  };
  EXPECT_FALSE(find_parting(path(".e"), without_gradients(".f", "")).differs);
  EXPECT_THAT(find_parting(path(".e"), without_gradients(".g", "\"fc0/b\":\"")).variables,
              ElementsAre("fc0/b"));
  for (const char* name : {".e", ".f", ".g"}) std::filesystem::remove_all(path(name));
}

TEST_F(RunHashTest, NotesTheSameGradientsInEachCanonicalWay) {
  const std::vector<std::vector<std::string>> ways{
      {"--devices=cpu:1", "--shards=2"},
      {"--devices=cpu:1", "--trainer=replicated", "--shards=2"},
      {"--devices=cpu:2", "--shards=2"},
      {"--devices=cpu:2", "--shards=2", "--trainer=parameter_server"},
      {"--devices=cpu:2", "--shards=2", "--allreduce=naive", "--bucket_mb=0"}};
  for (std::size_t i = 0; i < ways.size(); ++i) {
    std::vector<std::string> flags = ways[i];
    flags.insert(flags.end(), {"--global_batch_size=8", "--hash_every=2", "--max_steps=6",
                               "--run_dir=" + path(cat(".", i).c_str())});
    const TrainResult done = run_train(flags);
    EXPECT_EQ(done.code, 0) << done.error;
    const Parting parting = find_parting(path(".0"), path(cat(".", i).c_str()));
    EXPECT_FALSE(parting.differs) << i << ": " << join(parting.variables);
    EXPECT_EQ(parting.compared, 3);
    EXPECT_THAT(text_in(path(cat(".", i).c_str()) + "/hashes.jsonl"),
                HasSubstr("\"gradients\":{\"fc0/W\":\""));
  }
  for (std::size_t i = 0; i < ways.size(); ++i)
    std::filesystem::remove_all(path(cat(".", i).c_str()));
}

TEST_F(RunHashTest, EndsWhenCopiesOfAVariableDiffer) {
  const auto flips = [](std::int64_t step) {
    return recipe_that(step, [](Trainer& trainer) {
      const Variable w = trainer.built().nodes().towers[1].trainables[1];
      Tensor value = trainer.session().read(w);
      value.mutable_raw()[0] ^= std::byte{1};
      trainer.session().write(w, value);
    });
  };
  const std::vector<std::string> flags{"--devices=cpu:2", "--batch_size=4", "--save_every_steps=3"};
  const TrainResult saving = start(flags, flips(4));
  EXPECT_EQ(saving.code, 76);
  EXPECT_THAT(saving.error, HasSubstr("after step 6 the variable fc0/b on CPU:0 and its copy "
                                      "tower1/fc0/b on CPU:1 have other bits"));
  EXPECT_THAT(saving.error, HasSubstr("step 3 is saved"));
  EXPECT_THAT(checkpoints(), ElementsAre("latest", "step-00000003"));
  EXPECT_EQ(start(flags).code, 0);
  expect_as_never_stopped(flags);
  std::filesystem::remove_all(directory_);
  std::vector<std::string> often = flags;
  often.emplace_back("--check_replicas_every=1");
  EXPECT_THAT(start(often, flips(4)).error, HasSubstr("after step 5 the variable fc0/b"));
  EXPECT_EQ(start({"--check_replicas_every=-1"}).code, 2);
}

// The run adds a line at any call of the reader.
TEST(HashLog, IsReadWhileItGrows) {
  const auto line = [](int step) {
    return cat("{\"step\":", step, ",\"variables\":{\"w\":\"00\"}}\n");
  };
  for (int call = 0; call < 12; ++call) {
    MemoryFileSystem disk("/disk");
    for (const char* const name : {"/disk/a", "/disk/b"}) {
      const std::string text = line(1) + line(2);
      disk.create(name)->append(std::as_bytes(std::span(text)));
    }
    disk.at_call(call, [&](MemoryFileSystem& here) {
      const std::string more = line(3);
      const std::uint64_t bytes = 2 * more.size();
      for (const char* const name : {"/disk/a", "/disk/b"})
        here.extend(name, bytes)->append(std::as_bytes(std::span(more)));
    });
    EXPECT_GE(find_parting("/disk/a", "/disk/b", disk).compared, 2) << call;
  }
}

// Nothing is saved, so only the end looks.
TEST_F(TrainTest, CopiesThatDifferAtTheEndEndWithAnError) {
  Recipe recipe = recipe_that(4, [](Trainer& trainer) {
    const Variable w = trainer.built().nodes().towers[1].trainables[1];
    Tensor value = trainer.session().read(w);
    value.mutable_raw()[0] ^= std::byte{1};
    trainer.session().write(w, value);
  });
  const TrainResult done =
      run_train({"--devices=cpu:2", "--batch_size=4", "--json=" + json_.string()}, recipe);
  EXPECT_EQ(done.code, 76);
  EXPECT_THAT(done.error, HasSubstr("copies differ from tower 0's variables: tower1/fc0/b"));
  EXPECT_THAT(done.error, HasSubstr("error: the copies of the model's variables are not equal"));
  EXPECT_EQ(report()["replicas_equal"], false);
}

}  // namespace run_hash_test
}  // namespace belfry
