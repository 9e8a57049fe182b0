#include "belfry/framework/device/collective_hook.h"

#include <utility>

namespace belfry {
namespace {

CollectiveHook& hook() {
  static CollectiveHook instance;
  return instance;
}

}  // namespace

void set_collective_hook(CollectiveHook wanted) { hook() = std::move(wanted); }

void call_collective_hook(const Node& collective, WorkRange range) {
  if (hook()) hook()(collective, range);
}

}  // namespace belfry
