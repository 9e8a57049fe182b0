#include "belfry/framework/cuda/kernels/variants.h"

#include <mutex>
#include <vector>

#include "belfry/framework/base/require.h"
#include "belfry/framework/base/text.h"

namespace belfry::cuda {
namespace {

struct Variants {
  std::mutex mutex;
  std::map<std::string, const Variant*> by_key;
};

Variants& variants() {
  static Variants all;
  return all;
}

}  // namespace

Variant::Variant(const char* key) {
  const std::lock_guard lock(variants().mutex);
  variants().by_key[key] = this;
}

std::map<std::string, bool> Variant::all() {
  const std::lock_guard lock(variants().mutex);
  std::map<std::string, bool> all;
  for (const auto& [key, variant] : variants().by_key) all[key] = variant->on();
  return all;
}

void Variant::set(const std::map<std::string, bool>& choices) {
  const std::lock_guard lock(variants().mutex);
  std::vector<std::string> keys;
  for (const auto& [key, variant] : variants().by_key) keys.push_back(key);
  for (const auto& [key, on] : choices)
    require(variants().by_key.contains(key), "no kernel has a variant '", shown(key),
            "'; the known ones are ", join(keys, ", "));
  for (const auto& [key, variant] : variants().by_key) {
    const auto chosen = choices.find(key);
    variant->on_ = chosen == choices.end() || chosen->second;
  }
}

}  // namespace belfry::cuda
