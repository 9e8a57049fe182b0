// Shared by tests of checkpoints.
#pragma once
#include <filesystem>
#include <string>
#include <vector>

#include <unistd.h>

#include "belfry/framework/base/text.h"
#include "belfry/framework/checkpoint/checkpoint.h"
#include "belfry/framework/core_ops/assign.h"
#include "belfry/framework/core_ops/initializers.h"
#include "belfry/framework/core_ops/random.h"
#include "belfry/framework/graph/scopes.h"
#include "belfry/framework/graph/weights.h"
#include "belfry/tests/framework/framework_test_support.h"

namespace belfry {

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
    VariableOptions options{
        .dtype = dtype,
        .initializer = init::zeros(),
        .trainable = trainable,
        .collections = {std::string(original ? kLocalVariables : kGlobalVariables)}};
    if (original) options.copy_of = &original.node();
    if (!trainable) options.collections.emplace_back(kStateVariables);
    return graph.create_variable({name, std::move(shape), options}, At());
  }

  Graph graph;
  std::vector<Variable> w, count;
  Variable flag, local;
  Node* step;
};

inline SessionOptions cpus(int count) { return {.device_count = {{"CPU", count}}, .threads = 1}; }

inline const Tensor kWeightValues({2, 3}, std::vector<float>{1, 2, 3, 4, 5, 6});

class CheckpointTest : public ::testing::Test {
 protected:
  CheckpointTest() {
    std::string pattern = (std::filesystem::temp_directory_path() / "belfry-XXXXXX").string();
    folder_ = std::filesystem::canonical(mkdtemp(pattern.data())).string();
    path_ = folder_ + "/run";
  }
  ~CheckpointTest() override { std::filesystem::remove_all(folder_); }

  void fill(Session& session, const Model& model) {
    session.write(model.w[0], kWeightValues);
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
    return message_of<IoError>([&] { save_checkpoint(session, path); });
  }

  FileSystem& files_ = local_file_system();
  std::string folder_, path_;
};

}  // namespace belfry
