// Checkpoints that do not fit the graph, are damaged, or are read by others.
#include <spawn.h>
#include <sys/wait.h>

#include "belfry/framework/base/crc32.h"
#include "belfry/framework/base/text.h"
#include "belfry/framework/checkpoint/checkpoint_manifest.h"
#include "belfry/framework/checkpoint/safetensors.h"
#include "belfry/framework/core_ops/initializers.h"
#include "belfry/tests/framework/checkpoint/checkpoint_test_support.h"

extern char** environ;

namespace belfry {
namespace checkpoint_damage_test {

using ::testing::AllOf;
using ::testing::ContainsRegex;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

class WrongGraphTest : public CheckpointTest {
 protected:
  // The message of a restore into a graph with a change. The restore must change nothing.
  std::string mismatch(const std::function<void(Model&)>& change,
                       const RestoreOptions& options = {}) {
    Model model(1);
    change(model);
    Session session(model.graph);
    session.write(model.w[0], Tensor({2, 3}, DType::kF32));
    session.set_step(3);
    const std::string message =
        message_of<InvalidArgument>([&] { restore_checkpoint(session, path_, files_, options); });
    EXPECT_EQ(session.read(model.w[0]), Tensor({2, 3}, DType::kF32));
    EXPECT_EQ(session.step(), 3u);
    return message;
  }
};

TEST_F(WrongGraphTest, NamesTheVariableThatTheCheckpointLacks) {
  save();
  EXPECT_THAT(mismatch([](Model& m) { variable(m.graph, "coun", {1}); }),
              AllOf(HasSubstr("'coun' (built at checkpoint_damage_test.cc:"), HasSubstr(path_),
                    HasSubstr("did you mean 'count'?")));
}

TEST_F(WrongGraphTest, NamesTheTensorThatTheGraphLacksWhereAllAreWanted) {
  {
    Model model(1);
    variable(model.graph, "fc/v", {4}, {.initializer = init::ones()});
    Session session(model.graph);
    save_checkpoint(session, path_);
  }
  EXPECT_THAT(mismatch([](Model&) {}, {.strict = true}),
              AllOf(HasSubstr("model.safetensors: tensor 'fc/v' at byte "),
                    HasSubstr("the graph has no variable of this name; did you mean 'fc/w'?")));
}

TEST_F(WrongGraphTest, NamesBothTypesAndTheLineOfAnotherShapeOrDType) {
  const auto save_with = [&](Shape shape, DType dtype) {
    Model model(1);
    variable(model.graph, "z", std::move(shape), {.dtype = dtype, .initializer = init::ones()});
    Session session(model.graph);
    remove_tree(files_, path_);
    save_checkpoint(session, path_);
  };
  const auto change = [](Model& m) {
    variable(m.graph, "z", {3, 2}, {.initializer = init::ones()});
  };
  save_with({2, 3}, DType::kF32);
  EXPECT_THAT(
      mismatch(change),
      ContainsRegex("'z' \\(built at checkpoint_damage_test.cc:[0-9]+\\): is f32\\[3,2\\], but "
                    ".*model.safetensors has f32\\[2,3\\] at byte [0-9]+"));
  save_with({3, 2}, DType::kI32);
  EXPECT_THAT(mismatch(change), HasSubstr("has i32[3,2]"));
}

TEST_F(WrongGraphTest, TwoVariablesOfOneLogicalNameCannotBeSaved) {
  Model model(1);
  ReplicaScope replica(model.graph, "tower1/", 1);
  model.make("tower1/fc/w", {1}, DType::kF32, true);
  Session session(model.graph);
  EXPECT_THAT(message_of<InvalidArgument>([&] { save_checkpoint(session, path_); }),
              AllOf(HasSubstr("'tower1/fc/w'"), HasSubstr("one logical name, 'fc/w'")));
  EXPECT_THAT(listed(folder_), IsEmpty());
}

class DamageTest : public CheckpointTest {
 protected:
  DamageTest() { save(); }

  // The message of a restore from a file that holds `bytes`. The restore must change nothing.
  std::string damage(const char* name, const std::vector<std::byte>& bytes) {
    const std::vector<std::byte> right = files_.read(file(name));
    write(file(name), bytes);
    const std::string message = message_of<IoError>([&] { restore_checkpoint(session_, path_); });
    EXPECT_EQ(session_.read(model_.w[0]), Tensor({2, 3}, DType::kF32));
    EXPECT_EQ(session_.step(), 0u);
    write(file(name), right);
    EXPECT_THAT(message, HasSubstr(file(name)));
    return message;
  }

  const Model model_{1};
  Session session_{model_.graph};
};

TEST_F(DamageTest, OfAnyBitOfAnyFileIsFound) {
  for (const char* name : {"model.safetensors", "state.safetensors", "manifest.json"}) {
    const std::vector<std::byte> right = files_.read(file(name));
    for (std::size_t i = 0; i < right.size() && !HasFailure(); ++i) {
      SCOPED_TRACE(cat(name, " byte ", i));
      std::vector<std::byte> bytes = right;
      bytes[i] ^= std::byte{static_cast<unsigned char>(1u << i % 8)};
      const std::string message = damage(name, bytes);
      if (name == std::string("manifest.json")) continue;
      EXPECT_THAT(message, ContainsRegex("byte [0-9]+.*tensor '|tensor '.*byte [0-9]+"));
    }
  }
  restore_checkpoint(session_, path_);
  EXPECT_EQ(session_.read(model_.w[0]), kWeightValues);
}

TEST_F(DamageTest, OfValuesNamesTensorAndBytes) {
  std::vector<std::byte> bytes = files_.read(file("model.safetensors"));
  const std::size_t end = bytes.size(), begin = end - 24;
  bytes[begin + 5] ^= std::byte{1};
  EXPECT_THAT(damage("model.safetensors", bytes),
              HasSubstr(cat("tensor 'fc/w' at byte ", begin, " to ", end, ": damaged")));
}

TEST_F(DamageTest, ByLossOfTheEndOfAFileIsFoundWhereverThatIs) {
  for (const char* name : {"model.safetensors", "manifest.json"}) {
    const std::vector<std::byte> right = files_.read(file(name));
    const bool manifest = name == std::string("manifest.json");
    for (std::size_t size = 0; size + 2 < right.size() && !HasFailure(); ++size) {
      const std::string message =
          damage(name, {right.begin(), right.begin() + static_cast<std::ptrdiff_t>(size)});
      if (manifest || size < right.size() - 24) continue;
      EXPECT_THAT(message,
                  AllOf(HasSubstr("tensor 'fc/w' at byte"), HasSubstr(cat("ends at byte ", size))));
    }
  }
}

TEST_F(DamageTest, ByAnotherCheckpointsFileIsFound) {
  const std::vector<std::byte> state = files_.read(file("state.safetensors"));
  EXPECT_THAT(damage("model.safetensors", state), HasSubstr("damaged, or another file: byte "));
  std::vector<StoredTensor> none;
  const std::string head = lay_out_safetensors(none);
  const auto bytes = std::as_bytes(std::span(head));
  EXPECT_THAT(damage("model.safetensors", {bytes.begin(), bytes.end()}),
              HasSubstr("in the header of tensor 'fc/w'"));
}

TEST_F(DamageTest, ByTheLossOfAFileIsFound) {
  for (const char* name : {"state.safetensors", "model.safetensors"}) {
    files_.remove(file(name));
    EXPECT_THAT(message_of<IoError>([&] { restore_checkpoint(session_, path_); }),
                HasSubstr(file(name) + ": no such file, so the checkpoint is not whole"));
  }
}

// The exit status of a script of the repository; its output is not shown.
int run_script(const std::string& name, std::string argument) {
  std::string path = cat(BELFRY_SOURCE_DIR, "/scripts/", name);
  char* argv[] = {path.data(), argument.data(), nullptr};
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  for (const int stream : {1, 2})
    posix_spawn_file_actions_addopen(&actions, stream, "/dev/null", 1, 0);  // to be written
  pid_t child = 0;
  const int failure = posix_spawn(&child, path.c_str(), &actions, nullptr, argv, environ);
  posix_spawn_file_actions_destroy(&actions);
  int status = 0;
  if (failure != 0 || waitpid(child, &status, 0) != child || !WIFEXITED(status)) return -1;
  return WEXITSTATUS(status);
}

TEST_F(CheckpointTest, IsReadByThePythonPackageOfTheFormat) {
  constexpr int kNoPackage = 77, kNoPython = 127;
  std::vector<StoredTensor> tensors;
  for (const char* dtype : {"BOOL", "U8", "F16", "BF16", "F32", "I32", "F64", "I64"})
    for (const Shape& shape : {Shape{}, Shape{3}, Shape{0, 4}, Shape{5, 1, 2}})
      tensors.push_back({.name = cat(dtype, " \xc3\xa9 \"\n", shape),
                         .dtype = dtype_of_safetensors(dtype),
                         .shape = shape});
  std::string content = lay_out_safetensors(tensors, {{"format", "belfry"}});
  for (char byte = 0; content.size() < tensors.back().end; byte ^= 1) content += byte;
  const auto bytes = std::as_bytes(std::span(content));
  Manifest manifest;
  manifest.files["model.safetensors"] = {bytes.size(), crc32_of(bytes)};
  for (const StoredTensor& tensor : tensors)
    manifest.tensors[tensor.name] = {
        .file = "model.safetensors",
        .dtype = tensor.dtype,
        .shape = tensor.shape,
        .crc32 = crc32_of(bytes.subspan(tensor.begin, tensor.bytes()))};
  files_.create_directory(path_);
  write(file("model.safetensors"), bytes);
  write_text_file(files_, file("manifest.json"), manifest.str());
  const int status = run_script("check_safetensors", path_);
  if (status == kNoPackage || status == kNoPython)
    GTEST_SKIP() << "needs the Python package safetensors: scripts/check_safetensors --install";
  EXPECT_EQ(status, 0);
  manifest.tensors.begin()->second.crc32 ^= 1;
  write_text_file(files_, file("manifest.json"), manifest.str());
  EXPECT_EQ(run_script("check_safetensors", path_), 1);
  files_.remove(file("manifest.json"));
  files_.remove(file("model.safetensors"));
  files_.remove(path_);
  save(3);
  EXPECT_EQ(run_script("check_safetensors", path_), 0);
}

TEST(Manifest, OfANewerFormatSaysSo) {
  const std::string text =
      R"({"format":"belfry checkpoint","version":2,"news":[],"crc32":"00000000"})";
  EXPECT_EQ(message_of<IoError>([&] { Manifest::parse(text, "m.json"); }),
            "m.json: is of version 2 of the format; this Belfry reads 1");
}

TEST(Manifest, ReadsBackWhatItPrints) {
  Manifest manifest{.step = ~std::uint64_t{0},
                    .extra = JsonValue::object().set("crc32", "\"crc32\"")};
  manifest.files["f"] = {7, 0x89abcdef};
  manifest.tensors["\"crc32\""] = {.file = "f", .dtype = DType::kBF16, .shape = {0, 2}};
  const Manifest read = Manifest::parse(manifest.str(), "m.json");
  EXPECT_EQ(read.str(), manifest.str());
  EXPECT_EQ(read.step, ~std::uint64_t{0});
  EXPECT_EQ(read.files.at("f").crc32, 0x89abcdefu);
  EXPECT_EQ(read.tensors.at("\"crc32\"").shape, (Shape{0, 2}));
}

}  // namespace checkpoint_damage_test
}  // namespace belfry
