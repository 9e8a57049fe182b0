// Checkpoints that other processes save to at the same time, that are another model's, or of which
// a graph has only a part.
#include <csignal>

#include <sys/stat.h>
#include <sys/wait.h>

#include "belfry/framework/core_ops/initializers.h"
#include "belfry/tests/framework/checkpoint/checkpoint_test_support.h"

namespace belfry {
namespace checkpoint_sharing_test {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

TEST_F(CheckpointTest, WaitsForItsTurnAndSaysWhoseItIs) {
  save();
  const Model model(1);
  Session session(model.graph);
  const auto lock = files_.lock(path_ + ".lock");
  const std::string live = path_ + ".tmp-1-2";
  files_.create_directory(live);
  EXPECT_THAT(message_of<IoError>([&] {
                save_checkpoint(session, path_, JsonValue::object(), files_,
                                {.patience_seconds = 0});
              }),
              AllOf(HasSubstr(path_ + ": another process has been saving a checkpoint there"),
                    HasSubstr("wait for it, or save elsewhere")));
  EXPECT_THAT(listed(folder_), ElementsAre("run", "run.lock", "run.tmp-1-2"));
  EXPECT_EQ(inspect_checkpoint(path_).step, 17u);
}

TEST_F(CheckpointTest, OfAKilledProcessIsInNobodysWay) {
  write(path_ + ".lock", {});
  files_.create_directory(path_ + ".tmp-1-2");
  save();
  EXPECT_THAT(listed(folder_), ElementsAre("run"));
}

TEST_F(CheckpointTest, ProcessesThatSaveToOnePathTakeTurns) {
  constexpr int kProcesses = 12, kSaves = 4;
  std::vector<pid_t> children;
  for (int p = 0; p < kProcesses; ++p) {
    children.push_back(::fork());
    if (children.back() != 0) continue;
    try {
      for (int i = 0; i < kSaves; ++i) save();
      ::_exit(0);
    } catch (const std::exception&) {
      ::_exit(1);
    }
  }
  for (const pid_t child : children) {
    int status = 0;
    ::waitpid(child, &status, 0);
    EXPECT_EQ(status, 0);
  }
  EXPECT_THAT(listed(folder_), ElementsAre("run"));
  const Model model(1);
  Session session(model.graph);
  restore_checkpoint(session, path_);
  EXPECT_EQ(session.read(model.w[0]), kWeightValues);
}

class OtherModelTest : public CheckpointTest {
 protected:
  OtherModelTest() { save(); }

  // The refusal of a save of a graph with a change.
  std::string refusal(const std::function<void(Model&)>& change, const SaveOptions& options = {}) {
    Model model(1);
    change(model);
    Session session(model.graph);
    const std::string early =
        message_of<InvalidArgument>([&] { check_checkpoint_path(model.graph, path_, options); });
    EXPECT_EQ(message_of<InvalidArgument>(
                  [&] { save_checkpoint(session, path_, JsonValue::object(), files_, options); }),
              early);
    EXPECT_THAT(listed(folder_), ElementsAre("run"));
    EXPECT_EQ(inspect_checkpoint(path_).step, 17u);
    return early;
  }
};

TEST_F(OtherModelTest, IsNotOverwrittenUnasked) {
  EXPECT_THAT(refusal([](Model& m) { variable(m.graph, "v", {1}); }),
              AllOf(HasSubstr(path_ + " holds a checkpoint of another model: it lacks 'v'"),
                    HasSubstr("ask for it to be overwritten (the option overwrite)")));
  Graph other;
  variable(other, "fc/w", {3, 2});
  EXPECT_THAT(message_of<InvalidArgument>([&] { check_checkpoint_path(other, path_); }),
              HasSubstr("it has 'count', i64[], which this graph lacks"));
  const SaveOptions some{.optional = {"count", "flag"}};
  EXPECT_THAT(message_of<InvalidArgument>([&] { check_checkpoint_path(other, path_, some); }),
              HasSubstr("its 'fc/w' is f32[2,3], that of this graph is f32[3,2]"));
}

TEST_F(OtherModelTest, IsOverwrittenOnDemand) {
  Model model(1);
  variable(model.graph, "v", {1});
  Session session(model.graph);
  check_checkpoint_path(model.graph, path_, {.overwrite = true});
  save_checkpoint(session, path_, JsonValue::object(), files_, {.overwrite = true});
  EXPECT_EQ(inspect_checkpoint(path_).step, 0u);
  check_checkpoint_path(model.graph, path_);
}

TEST_F(OtherModelTest, IsSparedUnderItsOldNameToo) {
  files_.rename(path_, path_ + ".belfry-old");
  Graph other;
  variable(other, "v", {1});
  Session session(other);
  EXPECT_THAT(message_of<InvalidArgument>([&] { save_checkpoint(session, path_); }),
              HasSubstr("run.belfry-old holds a checkpoint of another model"));
  EXPECT_THAT(listed(folder_), ElementsAre("run.belfry-old"));
}

TEST_F(OtherModelTest, OrOursCannotBeToldOfADamagedManifest) {
  write(file("manifest.json"), std::as_bytes(std::span("{", 1)));
  const Model model(1);
  EXPECT_THAT(message_of<IoError>([&] { check_checkpoint_path(model.graph, path_); }),
              AllOf(HasSubstr("cannot be told from another model's: " + file("manifest.json")),
                    HasSubstr("(the option overwrite)")));
  check_checkpoint_path(model.graph, path_, {.overwrite = true});
}

TEST_F(OtherModelTest, MayDifferInOptionalVariables) {
  Model model(1);
  variable(model.graph, "scale", {1});
  check_checkpoint_path(model.graph, path_, {.optional = {"scale"}});
  Session session(model.graph);
  save_checkpoint(session, path_, JsonValue::object(), files_, {.optional = {"scale"}});
  save_checkpoint(session, path_);
  const Model without(1);
  check_checkpoint_path(without.graph, path_, {.optional = {"scale"}});
}

// A graph for inference: the model alone.
TEST_F(CheckpointTest, RestoresWhatTheGraphHasAndListsTheRest) {
  save();
  Graph graph;
  const Variable w = variable(graph, "fc/w", {2, 3}, {.initializer = init::zeros()});
  Session session(graph);
  const CheckpointInfo info = restore_checkpoint(session, path_);
  EXPECT_EQ(session.read(w), kWeightValues);
  EXPECT_EQ(session.step(), 17u);
  EXPECT_THAT(info.left_out, ElementsAre("count", "flag"));
  variable(graph, "fc/b", {3});
  Session more(graph);
  EXPECT_THAT(message_of<InvalidArgument>([&] { restore_checkpoint(more, path_); }),
              AllOf(HasSubstr("'fc/b' (built at checkpoint_sharing_test.cc:"),
                    HasSubstr("has no tensor 'fc/b'")));
}

TEST_F(CheckpointTest, LeavesNothingOutOfItsOwnGraph) {
  save();
  const Model model(1);
  Session session(model.graph);
  EXPECT_THAT(restore_checkpoint(session, path_, files_, {.whole = true}).left_out, IsEmpty());
}

TEST_F(CheckpointTest, KeepsThePermissionsOfTheOneBefore) {
  const auto mode = [](const std::string& path) {
    struct stat status = {};
    EXPECT_EQ(::stat(path.c_str(), &status), 0);
    return status.st_mode & 0777;
  };
  save();
  ASSERT_EQ(::chmod(path_.c_str(), 0700), 0);
  ASSERT_EQ(::chmod(file("model.safetensors").c_str(), 0600), 0);
  save();
  EXPECT_EQ(mode(path_), 0700u);
  EXPECT_EQ(mode(file("model.safetensors")), 0600u);
  EXPECT_EQ(mode(file("manifest.json")), 0644u);
}

TEST_F(CheckpointTest, OfWhichAPartIsNoFileIsRefusedByName) {
  save();
  const Model model(1);
  Session session(model.graph);
  for (const char* name : {"state.safetensors", "manifest.json"}) {
    const std::vector<std::byte> right = files_.read(file(name));
    files_.remove(file(name));
    const auto refusal = [&] {
      return message_of<IoError>([&] { restore_checkpoint(session, path_); });
    };
    ASSERT_EQ(mkfifo(file(name).c_str(), 0600), 0);
    EXPECT_THAT(refusal(), HasSubstr(file(name) + ": is a pipe, not a file to read"));
    files_.remove(file(name));
    std::filesystem::create_symlink("/dev/zero", file(name));
    EXPECT_THAT(refusal(), HasSubstr(file(name) + ": is a device, not a file to read"));
    files_.remove(file(name));
    write(file(name), right);
    ASSERT_EQ(::truncate(file(name).c_str(), off_t{1} << 40), 0);
    EXPECT_THAT(refusal(), HasSubstr(file(name) + ": has 1099511627776 bytes, more than"));
    files_.remove(file(name));
    write(file(name), right);
  }
}

TEST_F(CheckpointTest, ALargeManifestIsNeitherWrittenNorRead) {
  save();
  const Model model(1);
  Session session(model.graph);
  const JsonValue large = JsonValue::object().set("text", std::string(5 << 20, 'x'));
  EXPECT_THAT(message_of<InvalidArgument>([&] { save_checkpoint(session, path_, large); }),
              AllOf(HasSubstr("the manifest of the checkpoint " + path_), HasSubstr("4194304")));
  EXPECT_EQ(inspect_checkpoint(path_).step, 17u);
  std::filesystem::resize_file(file("manifest.json"), (4 << 20) + 1);
  EXPECT_THAT(message_of<IoError>([&] { restore_checkpoint(session, path_); }),
              HasSubstr(file("manifest.json") + ": has 4194305 bytes, more than the 4194304"));
}

}  // namespace checkpoint_sharing_test
}  // namespace belfry
