#include "belfry/framework/base/profiler_range.h"

#ifdef BELFRY_NVTX
#include <nvtx3/nvToolsExt.h>
#endif

namespace belfry {

#ifdef BELFRY_NVTX

namespace {

// Null without a profiler. The first call of NVTX looks for one.
nvtxDomainHandle_t domain() {
  static const nvtxDomainHandle_t made = nvtxDomainCreateA("belfry");
  return made;
}

}  // namespace

RangeName::RangeName(const std::string& name)
    : registered_(nvtxDomainRegisterStringA(domain(), name.c_str())) {}

void ProfilerRange::begin(const RangeName& name) noexcept {
  nvtxEventAttributes_t range{};
  range.version = NVTX_VERSION;
  range.size = NVTX_EVENT_ATTRIB_STRUCT_SIZE;
  range.messageType = NVTX_MESSAGE_TYPE_REGISTERED;
  range.message.registered = static_cast<nvtxStringHandle_t>(name.registered_);
  nvtxDomainRangePushEx(domain(), &range);
}

void ProfilerRange::end() noexcept { nvtxDomainRangePop(domain()); }

#else

RangeName::RangeName(const std::string&) {}
void ProfilerRange::begin(const RangeName&) noexcept {}
void ProfilerRange::end() noexcept {}

#endif

}  // namespace belfry
