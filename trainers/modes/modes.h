// Modes: ways to train that change where a step is computed, and must not change its results.
#pragma once
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "belfry/trainers/core/trainer.h"
#include "belfry/trainers/core/trainer_kinds.h"

namespace belfry {

struct Mode {
  std::string trainer;         // as --trainer
  std::string allreduce = {};  // as --allreduce, "auto" too; "" for trainers that combine nothing
  int gradient_repacking = 0;
  std::optional<double> bucket_mb = {};  // none: that of the options, or 0 if gradients are packed
  bool fuse = true, share_replicas = true;  // false: off, whatever the options say
  std::string async = {};                   // as --async; "": as in the options
  bool operator==(const Mode&) const = default;

  // "replicated naive packed:2".
  std::string name() const;
  // Whether towers on these devices must end with the bits of every other canonical mode. False if
  // the mode cannot run on them. "auto" counts as canonical; it is, unless AutoOptions::any is set.
  bool canonical(const std::vector<DeviceSpec>& devices) const;
  // The options with this mode applied.
  TrainerOptions applied_to(TrainerOptions options) const;
};

// Every registered trainer that takes these devices, with every registered strategy that it
// accepts; again with packed gradients, in buckets, without fusing
// and sharing, and with each value of --async. Canonical modes come first. Some may refuse the
// devices, or the model, when they are built.
std::vector<Mode> all_modes(const std::vector<DeviceSpec>& devices);

// Makes a trainer in this mode; null with the reason in `refusal` if the mode does not work with
// the options. Errors that have nothing to do with the mode are thrown.
std::unique_ptr<Trainer> make_in_mode(const Mode& mode, const TrainerOptions& options,
                                      const Dataset& train, std::string& refusal);

// Whether a trainer of this kind combines gradients on these devices canonically. With an empty
// `allreduce` it does if the trainer takes no strategy and its only way to combine is canonical.
bool combines_canonically(const TrainerKind& kind, const std::string& allreduce,
                          const std::vector<DeviceSpec>& devices);

// Whether the trainer's results must have the bits of all canonical modes: its mode is canonical,
// the model permits it (TrainingGraph::canonical), and all processes and earlier parts of the run
// compute alike (BuiltTraining::other_bits()).
bool is_canonical(const Mode& mode, const BuiltTraining& built);

// Whether runs with these options end with the same bits each time. On GPUs, unless the run is
// deterministic, libraries may choose other algorithms each time, or algorithms whose bits vary.
bool repeats(const TrainerOptions& options);

// The mode that "auto" stands for in a trainer made in `mode`; none without "auto".
std::optional<Mode> chosen_mode(const Mode& mode, const BuiltTraining& built);

}  // namespace belfry
