// A profiler for profiler_ranges_test.cc, which NVTX loads. At the end of the process it writes to
// the file $NVTX_COUNTS how often each range of the domain "belfry" has begun, and what the thread
// was in: "evaluation > step 2". A range that has not ended is written as "open".
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <map>
#include <mutex>
#include <set>
#include <string>
#include <vector>

#include <nvtx3/nvToolsExt.h>

namespace {

struct Counts {
  ~Counts() {
    const char* const path = std::getenv("NVTX_COUNTS");
    if (!path) return;
    std::ofstream file(path);
    for (const auto& [name, count] : begun) file << name << " " << count << "\n";
    if (open != 0) file << "open " << open << "\n";
  }

  std::mutex mutex;
  std::set<std::string> domains, names;  // handles are the addresses of elements
  std::map<std::string, int> begun;
  int open = 0;
};

Counts counts;
thread_local std::vector<std::string> open_ranges;

nvtxDomainHandle_t make_domain(const char* name) {
  const std::lock_guard lock(counts.mutex);
  const std::string& kept = *counts.domains.insert(name).first;
  return reinterpret_cast<nvtxDomainHandle_t>(const_cast<std::string*>(&kept));
}

nvtxStringHandle_t register_string(nvtxDomainHandle_t, const char* name) {
  const std::lock_guard lock(counts.mutex);
  const std::string& kept = *counts.names.insert(name).first;
  return reinterpret_cast<nvtxStringHandle_t>(const_cast<std::string*>(&kept));
}

bool is_belfry(nvtxDomainHandle_t domain) {
  return domain && *reinterpret_cast<const std::string*>(domain) == "belfry";
}

int push(nvtxDomainHandle_t domain, const nvtxEventAttributes_t* range) {
  if (!is_belfry(domain) || range->messageType != NVTX_MESSAGE_TYPE_REGISTERED) return -1;
  const std::string name = *reinterpret_cast<const std::string*>(range->message.registered);
  open_ranges.push_back(open_ranges.empty() ? name : open_ranges.back() + " > " + name);
  const std::lock_guard lock(counts.mutex);
  ++counts.begun[open_ranges.back()];
  ++counts.open;
  return static_cast<int>(open_ranges.size()) - 1;
}

int pop(nvtxDomainHandle_t domain) {
  if (!is_belfry(domain) || open_ranges.empty()) return -1;
  open_ranges.pop_back();
  const std::lock_guard lock(counts.mutex);
  --counts.open;
  return static_cast<int>(open_ranges.size());
}

}  // namespace

extern "C" int InitializeInjectionNvtx2(NvtxGetExportTableFunc_t table_of) {
  const auto* const callbacks =
      static_cast<const NvtxExportTableCallbacks*>(table_of(NVTX_ETID_CALLBACKS));
  NvtxFunctionTable table = nullptr;
  unsigned int size = 0;
  if (!callbacks || !callbacks->GetModuleFunctionTable(NVTX_CB_MODULE_CORE2, &table, &size) ||
      size <= NVTX_CBID_CORE2_DomainCreateA)
    return 0;
  const auto set = [&](int index, auto* function) {
    *table[index] = reinterpret_cast<NvtxFunctionPointer>(function);
  };
  set(NVTX_CBID_CORE2_DomainCreateA, &make_domain);
  set(NVTX_CBID_CORE2_DomainRegisterStringA, &register_string);
  set(NVTX_CBID_CORE2_DomainRangePushEx, &push);
  set(NVTX_CBID_CORE2_DomainRangePop, &pop);
  return 1;
}
