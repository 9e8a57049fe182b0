// Checkpoints that several processes save, or of which a graph has only a part.
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

TEST_F(CheckpointTest, OfProcessesThatSaveToOnePathOneWins) {
  constexpr int kProcesses = 8;
  std::vector<pid_t> children;
  for (int p = 0; p < kProcesses; ++p) {
    children.push_back(::fork());
    if (children.back() != 0) continue;
    try {
      save();
      ::_exit(0);
    } catch (const std::exception&) {
      ::_exit(1);
    }
  }
  int won = 0;
  for (const pid_t child : children) {
    int status = 0;
    ::waitpid(child, &status, 0);
    won += status == 0;
  }
  EXPECT_EQ(won, 1);
  EXPECT_THAT(listed(folder_), ElementsAre("run"));
  const Model model(1);
  Session session(model.graph);
  restore_checkpoint(session, path_);
  EXPECT_EQ(session.read(model.w[0]), kWeightValues);
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
  EXPECT_THAT(restore_checkpoint(session, path_, files_, {.strict = true}).left_out, IsEmpty());
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
  EXPECT_THAT(
      message_of<InvalidArgument>([&] { save_checkpoint(session, path_ + "2", large); }),
      AllOf(HasSubstr("the manifest of the checkpoint " + path_ + "2"), HasSubstr("4194304")));
  EXPECT_THAT(listed(folder_), ElementsAre("run"));
  std::filesystem::resize_file(file("manifest.json"), (4 << 20) + 1);
  EXPECT_THAT(message_of<IoError>([&] { restore_checkpoint(session, path_); }),
              HasSubstr(file("manifest.json") + ": has 4194305 bytes, more than the 4194304"));
}

}  // namespace checkpoint_sharing_test
}  // namespace belfry
