#include "belfry/framework/cuda/kernels/variants.h"

#include <mutex>
#include <vector>

#include "belfry/framework/base/require.h"
#include "belfry/framework/base/text.h"

namespace belfry::cuda {
namespace {

struct Variants {
  std::mutex mutex;
  std::map<std::string, bool> on;
};

Variants& variants() {
  static Variants all;
  return all;
}

}  // namespace

Variant::Variant(const char* key) : key_(key) {
  const std::lock_guard lock(variants().mutex);
  variants().on[key] = true;
}

bool Variant::on() const {
  const std::lock_guard lock(variants().mutex);
  return variants().on.at(key_);
}

std::map<std::string, bool> Variant::all() {
  const std::lock_guard lock(variants().mutex);
  return variants().on;
}

void Variant::set(const std::map<std::string, bool>& choices) {
  const std::lock_guard lock(variants().mutex);
  std::vector<std::string> keys;
  for (const auto& [key, on] : variants().on) keys.push_back(key);
  for (const auto& [key, on] : choices)
    require(variants().on.contains(key), "no kernel has a variant '", shown(key),
            "'; the known ones are ", join(keys, ", "));
  for (auto& [key, on] : variants().on) {
    const auto chosen = choices.find(key);
    on = chosen == choices.end() || chosen->second;
  }
}

}  // namespace belfry::cuda
