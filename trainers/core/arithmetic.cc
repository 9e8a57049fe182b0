#include "belfry/trainers/core/arithmetic.h"

#include <algorithm>
#include <array>
#include <cstdint>
#include <cstring>
#include <vector>

#if defined(__x86_64__)
#include <cpuid.h>
#endif
#include <gnu/libc-version.h>
#include <unistd.h>

#include "belfry/framework/base/text.h"
#include "belfry/framework/device/gpus.h"
#include "belfry/ops/kernels/onednn.h"
#include "belfry/trainers/util/device_list.h"

namespace belfry {
namespace {

// "GenuineIntel family 6 model 143"
std::string name_of_processor() {
#if defined(__x86_64__)
  unsigned a = 0;
  std::array<unsigned, 3> vendor{};
  if (!__get_cpuid(0, &a, &vendor[0], &vendor[2], &vendor[1])) return "unknown processor";
  std::array<char, sizeof vendor> name{};
  std::memcpy(name.data(), vendor.data(), sizeof vendor);
  unsigned signature = 0, b = 0, c = 0, d = 0;
  __get_cpuid(1, &signature, &b, &c, &d);
  const unsigned low = signature >> 8 & 0xf,
                 family = low == 0xf ? low + (signature >> 20 & 0xff) : low;
  const unsigned model =
      (signature >> 4 & 0xf) | (low == 6 || low == 0xf ? signature >> 12 & 0xf0 : 0);
  return cat(std::string(name.data(), name.size()), " family ", family, " model ", model);
#else
  return "unknown processor";
#endif
}

// "0-2, 4": ranks in order.
std::string rank_ranges(const std::vector<int>& ranks) {
  std::vector<std::string> parts;
  for (std::size_t i = 0; i < ranks.size();) {
    std::size_t end = i + 1;
    while (end < ranks.size() && ranks[end] == ranks[end - 1] + 1) ++end;
    parts.push_back(end - i == 1 ? cat(ranks[i]) : cat(ranks[i], "-", ranks[end - 1]));
    i = end;
  }
  return join(parts);
}

// "X", or "X (ranks 0-2, 4) and Y (rank 3)", of a text for each rank.
std::string text_of_ranks(const std::vector<std::string>& by_rank) {
  std::vector<std::string> different;
  for (const std::string& one : by_rank)
    if (std::ranges::find(different, one) == different.end()) different.push_back(one);
  if (different.size() == 1) return different[0];
  std::string text;
  for (const std::string& one : different) {
    std::vector<int> ranks;
    for (std::size_t r = 0; r < by_rank.size(); ++r)
      if (by_rank[r] == one) ranks.push_back(static_cast<int>(r));
    text += cat(text.empty() ? "" : " and ", one, ranks.size() == 1 ? " (rank " : " (ranks ",
                rank_ranges(ranks), ")");
  }
  return text;
}

std::string mixture_of_ranks(const Processes& processes, const std::vector<std::string>& by_rank) {
  const auto other = std::ranges::find_if(by_rank, [&](auto& one) { return one != by_rank[0]; });
  if (other == by_rank.end()) return "";
  const auto rank = static_cast<int>(other - by_rank.begin());
  return cat("rank ", rank, " on ", processes.host(rank), " computes with ", *other,
             ", rank 0 with ", by_rank[0]);
}

}  // namespace

AgreedItem agreed_version() { return {"the version of Belfry", BELFRY_VERSION}; }

std::string arithmetic_of(std::span<const DeviceSpec> devices) {
  const char* const set = __builtin_cpu_supports("avx512f") ? "AVX-512"
                          : __builtin_cpu_supports("avx2")  ? "AVX2"
                                                            : "SSE";
  const std::string onednn = onednn_version(), taken = onednn_instructions();
  std::string text = cat("Belfry ", agreed_version().value, " with ", set);
  if (!onednn.empty()) text += cat(", oneDNN ", onednn, taken == set ? "" : cat(" with ", taken));
  // Asking for the backend loads it, with 150 MiB of libraries.
  if (!any_gpu(devices)) return text;
  const GpuBackend* const backend = gpus().backend();
  if (!backend) return text;
  const GpuVersions versions = backend->versions();
  return cat(text, ", ", backend->info(0).name, ", cuBLASLt ", versions.cublas_lt, ", cuDNN ",
             versions.cudnn);
}

std::string processor_of_host() {
  const auto kib = [](int name) { return std::max(0L, ::sysconf(name)) >> 10; };
  return cat(name_of_processor(), ", L1 ", kib(_SC_LEVEL1_DCACHE_SIZE), " KiB, L2 ",
             kib(_SC_LEVEL2_CACHE_SIZE), " KiB, glibc ", ::gnu_get_libc_version());
}

Arithmetics arithmetics_of(Processes* processes, std::span<const DeviceSpec> devices) {
  const std::string own = arithmetic_of(devices), processor = processor_of_host();
  if (!processes) return {.all = own, .processors = processor};
  const std::vector<std::string> all = processes->gather(own);
  return {.all = text_of_ranks(all),
          .processors = text_of_ranks(processes->gather(processor)),
          .mixed = mixture_of_ranks(*processes, all)};
}

}  // namespace belfry
