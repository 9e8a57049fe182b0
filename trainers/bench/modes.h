// Modes: ways to train that change where a step is computed, and must not change what.
#pragma once
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "belfry/trainers/core/trainer_kinds.h"

namespace belfry {

struct Mode {
  std::string trainer;         // as --trainer
  std::string allreduce = {};  // as --allreduce, "auto" too; "" for trainers that combine nothing
  int gradient_repacking = 0;
  std::optional<double> bucket_mb = {};     // none: as the options say, unless packed
  bool fuse = true, share_replicas = true;  // false: not, whatever the options say
  std::string async = {};                   // as --async; "": as the options say
  bool operator==(const Mode&) const = default;

  // "replicated naive packed:2".
  std::string name() const;
  // Whether towers on these devices must end with the bits of every other canonical mode. False for
  // modes that cannot serve them. "auto" counts as canonical, which it is unless AutoOptions::any.
  bool canonical(const std::vector<DeviceSpec>& devices) const;
  // `options` in this mode.
  TrainerOptions applied_to(TrainerOptions options) const;
};

// Every registered trainer that takes these devices, with every registered strategy that it
// accepts and, for several towers, "auto"; again with packed gradients, in buckets, with
// updates and replicas apart, and in each way of --async. Canonical ones first. Some may refuse the
// devices, or the model, when they are built.
std::vector<Mode> all_modes(const std::vector<DeviceSpec>& devices);

// A trainer made in this mode, or null with the reason in `refusal` if it cannot serve the options.
// Whatever is not of the mode's making throws.
std::unique_ptr<Trainer> make_in_mode(const Mode& mode, const TrainerOptions& options,
                                      const Dataset& train, std::string& refusal);

// Whether a trainer of this kind combines the gradients of towers on these devices so. Without a
// strategy it does if it takes none, and combines in one way of its own.
bool combines_canonically(const TrainerKind& kind, const std::string& allreduce,
                          const std::vector<DeviceSpec>& devices);

// Whether what the trainer, made in this mode, ends with must have the bits of all canonical modes:
// the mode is, and the model lets it (TrainingGraph::canonical).
bool is_canonical(const Mode& mode, const Trainer& trainer);

// Whether a run with these options ends with the same bits each time: on GPUs libraries may choose
// other algorithms, and such that do not repeat, unless it is deterministic.
bool repeats(const TrainerOptions& options);

// The mode that "auto" stands for in a trainer made in `mode`; none without "auto".
std::optional<Mode> chosen_mode(const Mode& mode, const Trainer& trainer);

}  // namespace belfry
