// The algorithms that were chosen, and the file that keeps them:
//
//   {
//     "belfry_algorithms": 1,
//     "choices": {
//       "Conv2d f32 x [64,28,28,1] ... stride [1,1] on NVIDIA H200, cuDNN 9.19.0":
//         {"algorithm": 1, "workspace_bytes": 4096, "deterministic": true},
//       "Conv2d f64 ...": {"algorithm": null}
//     },
//     "variants": {"batch_norm.mask_from_x": false}
//   }
//
// null: our own kernel computes the call. Variants (variants.h) hold for the whole process; those
// that are on may be left out.
#pragma once
#include <map>
#include <mutex>
#include <optional>
#include <set>
#include <string>
#include <string_view>

#include "belfry/framework/cuda/kernels/calls.h"

namespace belfry::cuda {

// Its functions may be called from several threads.
class AlgorithmTable {
 public:
  using Choice = std::optional<CudnnAlgorithm>;

  // Adds the choices of a file with this text. Throws InvalidArgument naming the path, the entry
  // and what is wrong with it; the table is then unchanged.
  void read(std::string_view text, const std::string& path);
  std::string str() const;

  // The choice for a signature; null if there is none. Valid as long as the table.
  const Choice* find(const std::string& signature) const;
  // Keeps the first choice of a signature, and returns it.
  const Choice& add(const std::string& signature, Choice choice);

  // Whether this is the first call with this line, so that the log has it only once.
  bool first(const std::string& line);

 private:
  mutable std::mutex mutex_;
  std::map<std::string, Choice> choices_;
  std::set<std::string> lines_;
};

}  // namespace belfry::cuda
