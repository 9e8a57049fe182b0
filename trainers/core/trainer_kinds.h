// The trainers that --trainer can name.
#pragma once
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "belfry/trainers/core/trainer.h"

namespace belfry {

// To add one: derive from Trainer and register it from its own file (replicated.cc is an example).
struct TrainerKind {
  std::string name;
  std::string summary;                // for --help
  bool one_device = false;            // takes exactly one
  std::string default_strategy = {};  // of --allreduce; "" if the trainer takes none
  // Whether it can combine gradients as a spec says; asked only of specs that are well formed.
  bool (*accepts)(std::string_view spec) = nullptr;
  bool spreads = false;     // takes --parameter_device
  bool replicates = false;  // takes --fuse_updates=1 and --share_replicas=1
  bool packs = false;       // takes --gradient_repacking and --small_tensors_kb
  bool buckets = false;     // takes --bucket_mb
  bool weighs = false;      // takes --uneven=pad, --uneven=weight and --tower_weights
  bool async = false;       // takes --async
  // Whether its results are those of one tower with the whole batch, if the strategy's are: else it
  // is canonical for no strategy.
  bool canonical = false;
  std::unique_ptr<Trainer> (*make)(TrainerOptions, const Dataset& train, const Dataset* test);
};

// Throws InvalidArgument if the name is taken or the fields contradict each other.
void register_trainer(TrainerKind kind);
// Sorted by name.
std::vector<std::string> trainer_names();
// Throws InvalidArgument with all names and the nearest one.
const TrainerKind& find_trainer(std::string_view name);

// For TrainerKind::make.
template <class T>
std::unique_ptr<Trainer> make_trainer(TrainerOptions options, const Dataset& train,
                                      const Dataset* test) {
  return std::make_unique<T>(std::move(options), train, test);
}

// Registers a trainer when the program starts.
struct TrainerRegistration {
  explicit TrainerRegistration(TrainerKind kind) { register_trainer(std::move(kind)); }
};

}  // namespace belfry
