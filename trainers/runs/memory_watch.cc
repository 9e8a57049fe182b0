#include "belfry/trainers/runs/memory_watch.h"

#include "belfry/framework/base/host_memory.h"
#include "belfry/framework/base/text.h"
#include "belfry/trainers/core/trainer.h"

namespace belfry {

void MemoryWatch::after_step(Trainer& trainer, const StepInfo& info) {
  values_.clear();
  if (every_ == 0 || (info.step + 1) % every_ != 0) return;
  values_.push_back({"host_bytes", static_cast<double>(resident_bytes())});
  for (const DeviceUse& use : trainer.session().device_use())
    values_.push_back(
        {cat("device_bytes/", use.device.short_str()), static_cast<double>(use.bytes)});
}

}  // namespace belfry
