#include "belfry/framework/checkpoint.h"

#include <filesystem>

#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include "belfry/framework/checkpoint_manifest_impl.h"
#include "belfry/framework/core_ops/assign.h"
#include "belfry/framework/core_ops/random.h"
#include "belfry/framework/safetensors.h"
#include "belfry/framework/scopes.h"
#include "belfry/tests/framework/framework_test_support.h"

extern char** environ;

namespace belfry {
namespace {

using ::testing::AllOf;
using ::testing::ContainsRegex;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

// A weight, a counter and a flag, with replicas in towers 1 to K - 1, each tower on its own device,
// and a local variable.
struct Model {
  explicit Model(int towers, int main_device = 0, std::uint64_t seed = 1) : graph(seed) {
    for (int t = 0; t < towers; ++t) {
      const std::string prefix = t == 0 ? "" : cat("tower", t, "/");
      ReplicaScope replica(graph, prefix, t);
      DeviceScope on(graph, cpu(t == 0 ? main_device : t));
      w.push_back(make(prefix + "fc/w", {2, 3}, DType::kF32, true, t == 0 ? Variable() : w[0]));
      count.push_back(
          make(prefix + "count", {}, DType::kI64, false, t == 0 ? Variable() : count[0]));
    }
    flag = make("flag", {2}, DType::kBool, false);
    local = variable(graph, "local", {1},
                     {.initializer = init::zeros(),
                      .trainable = false,
                      .collections = {std::string(kLocalVariables)}});
    step = &assign_add(w[0], random_uniform(graph, {2, 3}, 0, 1));
  }

  Variable make(const std::string& name, Shape shape, DType dtype, bool trainable,
                Variable original = {}) {
    VariableOptions options{.dtype = dtype, .initializer = init::zeros(), .trainable = trainable};
    if (original) {
      options.collections = {std::string(kLocalVariables)};
      options.copy_of = &original.node();
    }
    return graph.create_variable({name, std::move(shape), options}, At());
  }

  Graph graph;
  std::vector<Variable> w, count;
  Variable flag, local;
  Node* step;
};

SessionOptions cpus(int count) { return {.device_count = {{"CPU", count}}, .threads = 1}; }

const Tensor kWeights({2, 3}, std::vector<float>{1, 2, 3, 4, 5, 6});

class CheckpointTest : public ::testing::Test {
 protected:
  CheckpointTest() {
    std::string pattern = (std::filesystem::temp_directory_path() / "belfry-XXXXXX").string();
    folder_ = std::filesystem::canonical(mkdtemp(pattern.data())).string();
    path_ = folder_ + "/run";
  }
  ~CheckpointTest() override { std::filesystem::remove_all(folder_); }

  void fill(Session& session, const Model& model) {
    session.write(model.w[0], kWeights);
    session.write(model.count[0], Tensor(std::int64_t{42}));
    session.write(model.flag, Tensor({2}, std::vector<bool>{false, true}));
    session.write(model.local, floats({9}));
    session.set_step(17);
  }
  // Saves a model with known values at path_.
  void save(int towers = 1) {
    const Model model(towers);
    Session session(model.graph, cpus(towers));
    fill(session, model);
    save_checkpoint(session, path_);
  }
  std::string file(const char* name) const { return cat(path_, "/", name); }
  std::vector<std::string> listed(const std::string& path) { return files_.list(path); }
  void write(const std::string& path, std::span<const std::byte> bytes) {
    const auto out = files_.create(path);
    out->append(bytes);
    out->close();
  }
  std::string refused(const std::string& path) {
    const Model model(1);
    Session session(model.graph);
    const std::string early = message_of<IoError>([&] { check_checkpoint_path(path); });
    EXPECT_EQ(message_of<IoError>([&] { save_checkpoint(session, path); }), early);
    return early;
  }

  FileSystem& files_ = local_file_system();
  std::string folder_, path_;
};

TEST_F(CheckpointTest, BringsBackVariablesStepAndTheCallersNumbers) {
  {
    const Model model(1);
    Session session(model.graph);
    fill(session, model);
    save_checkpoint(session, path_,
                    Json::object().set("samples", 1'234'567'890'123).set("rate", 0.1));
  }
  const Model model(1);
  Session session(model.graph);
  const CheckpointInfo info = restore_checkpoint(session, path_);
  EXPECT_EQ(session.read(model.w[0]), kWeights);
  EXPECT_EQ(session.read(model.count[0]).item<std::int64_t>(), 42);
  EXPECT_EQ(session.read(model.flag), Tensor({2}, std::vector<bool>{false, true}));
  EXPECT_EQ(session.read(model.local), floats({0}));
  EXPECT_EQ(session.step(), 17u);
  EXPECT_EQ(info.path, path_);
  EXPECT_FALSE(info.is_old);
  EXPECT_EQ(info.step, 17u);
  EXPECT_EQ(info.extra.str(), R"({"samples":1234567890123,"rate":0.1})");
  EXPECT_EQ(inspect_checkpoint(path_).extra.str(), info.extra.str());
}

TEST_F(CheckpointTest, GoesOnToTheSameRandomNumbers) {
  const Model model(1);
  Session straight(model.graph), first(model.graph), second(model.graph);
  for (int i = 0; i < 4; ++i) straight.run({*model.step});
  for (int i = 0; i < 2; ++i) first.run({*model.step});
  save_checkpoint(first, path_);
  restore_checkpoint(second, path_);
  for (int i = 0; i < 2; ++i) second.run({*model.step});
  EXPECT_EQ(second.read(model.w[0]), straight.read(model.w[0]));
}

TEST_F(CheckpointTest, KeepsWeightsApartFromTheRestAndNoCopies) {
  save(3);
  EXPECT_THAT(listed(folder_), ElementsAre("run"));
  EXPECT_THAT(listed(path_),
              ElementsAre("manifest.json", "model.safetensors", "state.safetensors"));
  const auto names = [&](const char* name) {
    std::vector<std::string> result;
    const Safetensors content(files_.read(file(name)), name);
    for (const auto& [key, tensor] : content.tensors()) result.push_back(key);
    return result;
  };
  EXPECT_THAT(names("model.safetensors"), ElementsAre("fc/w"));
  EXPECT_THAT(names("state.safetensors"), ElementsAre("count", "flag"));
  const auto text = files_.read(file("manifest.json"));
  const Json manifest = Json::parse({reinterpret_cast<const char*>(text.data()), text.size()});
  EXPECT_EQ(manifest.at("version").integer(), 1);
  EXPECT_EQ(manifest.at("step").integer(), 17);
  const Json& weight = manifest.at("tensors").at("fc/w");
  EXPECT_EQ(weight.at("file").text(), "model.safetensors");
  EXPECT_EQ(weight.at("shape").str(), "[2,3]");
  EXPECT_EQ(weight.at("dtype").text(), "F32");
  EXPECT_EQ(weight.at("device").text(), "/job:localhost/replica:0/task:0/device:CPU:0");
  // zlib.crc32(struct.pack("<6f", 1, 2, 3, 4, 5, 6))
  EXPECT_EQ(weight.at("crc32").text(), "1939e524");
}

TEST_F(CheckpointTest, FitsAnotherNumberOfTowersAndOtherDevices) {
  for (const int saved : {1, 3}) {
    save(saved);
    for (const int towers : {1, 2, 4}) {
      const Model model(towers, towers - 1);
      Session session(model.graph, cpus(towers));
      restore_checkpoint(session, path_);
      for (int t = 0; t < towers; ++t) {
        EXPECT_EQ(session.read(model.w[static_cast<std::size_t>(t)]), kWeights);
        EXPECT_EQ(session.read(model.count[static_cast<std::size_t>(t)]).item<std::int64_t>(), 42);
      }
      EXPECT_EQ(session.placement(model.w[0].ref()), cpu(towers - 1));
    }
  }
}

TEST_F(CheckpointTest, IsFoundUnderItsOldNameWhereThereIsNoNewer) {
  save();
  files_.rename(path_, path_ + ".old");
  const Model model(1);
  Session session(model.graph);
  const CheckpointInfo info = restore_checkpoint(session, path_);
  EXPECT_TRUE(info.is_old);
  EXPECT_EQ(info.path, path_ + ".old");
  EXPECT_EQ(session.read(model.w[0]), kWeights);
  save();
  EXPECT_THAT(listed(folder_), ElementsAre("run"));
}

TEST_F(CheckpointTest, ReplacesTheOneBeforeAndWhatAKilledWriterLeft) {
  save();
  files_.create_directory(path_ + ".tmp-1-2/deep");
  write(path_ + ".tmp-1-2/deep/x", {});
  files_.create_directory(folder_ + "/other.tmp-1");
  save();
  EXPECT_THAT(listed(folder_), ElementsAre("other.tmp-1", "run"));
}

TEST_F(CheckpointTest, TheRemovalOfLeftoversFollowsNoLinks) {
  files_.create_directory(folder_ + "/precious");
  write(folder_ + "/precious/x", {});
  std::filesystem::create_directory_symlink(folder_ + "/precious", path_ + ".tmp-9");
  save();
  EXPECT_THAT(listed(folder_), ElementsAre("precious", "run"));
  EXPECT_THAT(listed(folder_ + "/precious"), ElementsAre("x"));
}

TEST_F(CheckpointTest, PathsMayBeRelativeEndInASlashBeLinksAndExistEmpty) {
  const auto before = std::filesystem::current_path();
  std::filesystem::current_path(folder_);
  path_ = "./sub/../run//";
  files_.create_directory("sub");
  save();
  save();
  std::filesystem::current_path(before);
  EXPECT_THAT(listed(folder_), ElementsAre("run", "sub"));
  std::filesystem::create_directory_symlink(folder_ + "/sub", folder_ + "/link");
  path_ = folder_ + "/link";
  save();
  save();
  EXPECT_THAT(listed(folder_), ElementsAre("link", "run", "sub"));
  EXPECT_EQ(inspect_checkpoint(folder_ + "/sub").step, 17u);
  EXPECT_EQ(inspect_checkpoint(path_).path, folder_ + "/sub");
}

TEST_F(CheckpointTest, NothingElseIsOverwritten) {
  write(path_, std::as_bytes(std::span("hello", 5)));
  EXPECT_THAT(refused(path_), HasSubstr(path_ + " is a file"));
  EXPECT_EQ(files_.read(path_).size(), 5u);
  const std::string photos = folder_ + "/photos";
  files_.create_directory(photos);
  write(photos + "/manifest.json", {});
  EXPECT_THAT(refused(photos), HasSubstr("neither a whole checkpoint nor empty"));
  write(photos + "/cat.jpg", {});
  EXPECT_THAT(refused(photos), HasSubstr(photos + " is a directory with 'cat.jpg'"));
  std::filesystem::rename(photos, photos + ".old");
  EXPECT_THAT(refused(photos), HasSubstr(photos + ".old is a directory with 'cat.jpg'"));
  EXPECT_THAT(listed(folder_), ElementsAre("photos.old", "run"));
}

TEST_F(CheckpointTest, APlaceThatCannotBeWrittenIsRefusedEarly) {
  EXPECT_THAT(refused(folder_ + "/no/run"),
              HasSubstr(cat("cannot save a checkpoint at ", folder_, "/no/run: ", folder_,
                            "/no does not exist")));
  write(folder_ + "/file", {});
  EXPECT_THAT(refused(folder_ + "/file/run"), HasSubstr("/file"));
  EXPECT_THAT(message_of<IoError>([] { check_checkpoint_path("/proc/belfry"); }),
              HasSubstr("/proc/belfry.tmp-"));
  EXPECT_THROW(check_checkpoint_path(""), InvalidArgument);
  EXPECT_THROW(check_checkpoint_path("/"), IoError);
  check_checkpoint_path(path_);
  EXPECT_THAT(listed(folder_), ElementsAre("file"));
}

TEST_F(CheckpointTest, WhatIsNoCheckpointIsNotRestored) {
  const Model model(1);
  Session session(model.graph);
  const auto restore = [&] { restore_checkpoint(session, path_); };
  EXPECT_THAT(message_of<NotFound>(restore),
              HasSubstr(cat("there is no checkpoint ", path_, ", nor ", path_, ".old")));
  write(path_, {});
  EXPECT_THAT(message_of<IoError>(restore), HasSubstr("a checkpoint is a directory"));
  files_.remove(path_);
  files_.create_directory(path_);
  EXPECT_THAT(message_of<IoError>(restore), HasSubstr("holds no manifest.json"));
  write(file("manifest.json"), std::as_bytes(std::span("{\"name\": \"app\"}", 15)));
  EXPECT_THAT(message_of<IoError>(restore), HasSubstr("no manifest of a checkpoint"));
}

class WrongGraphTest : public CheckpointTest {
 protected:
  // The message of a restore into `graph` after a change, which must change nothing.
  std::string mismatch(const std::function<void(Model&)>& change) {
    Model model(1);
    change(model);
    Session session(model.graph);
    session.write(model.w[0], Tensor({2, 3}, DType::kF32));
    session.set_step(3);
    const std::string message =
        message_of<InvalidArgument>([&] { restore_checkpoint(session, path_); });
    EXPECT_EQ(session.read(model.w[0]), Tensor({2, 3}, DType::kF32));
    EXPECT_EQ(session.step(), 3u);
    return message;
  }
};

TEST_F(WrongGraphTest, NamesTheVariableThatTheCheckpointLacks) {
  save();
  EXPECT_THAT(mismatch([](Model& m) { variable(m.graph, "coun", {1}); }),
              AllOf(HasSubstr("'coun' (built at checkpoint_test.cc:"), HasSubstr(path_),
                    HasSubstr("did you mean 'count'?")));
}

TEST_F(WrongGraphTest, NamesTheTensorThatTheGraphLacks) {
  {
    Model model(1);
    variable(model.graph, "fc/v", {4}, {.initializer = init::ones()});
    Session session(model.graph);
    save_checkpoint(session, path_);
  }
  EXPECT_THAT(mismatch([](Model&) {}),
              AllOf(HasSubstr("model.safetensors: tensor 'fc/v' at byte "),
                    HasSubstr("the graph has no variable of this name; did you mean 'fc/w'?")));
}

TEST_F(WrongGraphTest, NamesBothTypesAndTheLineOfAnotherShapeOrDType) {
  const auto save_with = [&](Shape shape, DType dtype) {
    Model model(1);
    variable(model.graph, "z", std::move(shape), {.dtype = dtype, .initializer = init::ones()});
    Session session(model.graph);
    save_checkpoint(session, path_);
  };
  const auto change = [](Model& m) {
    variable(m.graph, "z", {3, 2}, {.initializer = init::ones()});
  };
  save_with({2, 3}, DType::kF32);
  EXPECT_THAT(mismatch(change),
              ContainsRegex("'z' \\(built at checkpoint_test.cc:[0-9]+\\): is f32\\[3,2\\], but "
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

  // The message of a restore from a file that holds `bytes`; it must change nothing.
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
      EXPECT_THAT(damage(name, bytes), ContainsRegex("bytes? [0-9]+|damaged|manifest|version"));
    }
  }
  restore_checkpoint(session_, path_);
  EXPECT_EQ(session_.read(model_.w[0]), kWeights);
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
  EXPECT_THAT(damage("model.safetensors", state), HasSubstr("the manifest does not list it"));
  std::vector<StoredTensor> none;
  const std::string head = lay_out_safetensors(none);
  const auto bytes = std::as_bytes(std::span(head));
  EXPECT_THAT(damage("model.safetensors", {bytes.begin(), bytes.end()}),
              HasSubstr("tensor 'fc/w' is missing"));
}

TEST_F(DamageTest, ByTheLossOfAFileIsFound) {
  files_.remove(file("state.safetensors"));
  EXPECT_THAT(message_of<NotFound>([&] { restore_checkpoint(session_, path_); }),
              HasSubstr(file("state.safetensors")));
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
  Manifest manifest{.step = ~std::uint64_t{0}, .extra = Json::object().set("crc32", "\"crc32\"")};
  manifest.files["f"] = {7, 0x89abcdef};
  manifest.tensors["\"crc32\""] = {.file = "f", .dtype = DType::kBF16, .shape = {0, 2}};
  const Manifest read = Manifest::parse(manifest.str(), "m.json");
  EXPECT_EQ(read.str(), manifest.str());
  EXPECT_EQ(read.step, ~std::uint64_t{0});
  EXPECT_EQ(read.files.at("f").crc32, 0x89abcdefu);
  EXPECT_EQ(read.tensors.at("\"crc32\"").shape, (Shape{0, 2}));
}

TEST(Manifest, UsesTheCrcOfZlib) {
  EXPECT_EQ(crc32_of(std::as_bytes(std::span("123456789", 9))), 0xcbf43926u);
  EXPECT_EQ(
      crc32_of(std::as_bytes(std::span("6789", 4)), crc32_of(std::as_bytes(std::span("12345", 5)))),
      0xcbf43926u);
}

}  // namespace
}  // namespace belfry
