// How `--allreduce=auto` chooses.
#pragma once
#include <algorithm>
#include <memory>
#include <vector>

namespace belfry {

struct MachineDescription;

// The default size of buckets of gradients, in MiB.
inline constexpr double kDefaultBucketMb = 4;
inline constexpr double kMostBucketMb = 1 << 20;
// The default for several processes. Many have larger buckets, so that the pieces of a bucket that
// they send each other have 256 KiB, but not so large that little is sent while gradients are being
// computed.
constexpr double default_bucket_mb(int processes) {
  return std::clamp(processes / 4.0, kDefaultBucketMb, 32.0);
}

// With several processes a bucket that nobody has asked for holds an eighth of the gradients at
// most, so that most of them are under way before the last ones are known. Short pieces cost more
// than they save. `whole`: processes send whole buckets, not pieces.
constexpr double bucket_mb_of_processes(double most_mb, double gradient_bytes, int processes,
                                        bool whole) {
  constexpr double kLeastPiece = 0.25;  // MiB
  const double least = whole ? kLeastPiece : kLeastPiece * processes;
  return std::min(most_mb, std::max(gradient_bytes / 8 / (1 << 20), least));
}

// How to choose.
struct AutoOptions {
  bool any = false;  // also tries strategies that are not canonical
  // Sizes of buckets to try, in MiB (see ChoiceOptions); unused with packed gradients. A single
  // size is the one that the user asked for.
  std::vector<double> buckets = {kDefaultBucketMb, 1, 16, 0};
  std::shared_ptr<const MachineDescription> machine = {};  // to predict for; `auto` needs one
};

}  // namespace belfry
