// NCCL, opened at run time: without it only the strategy nccl is missing. Every call goes through
// the table:  BELFRY_GPU_CALL(nccl.ncclCommAbort(comm), "after step 7")  throws CommError.
#pragma once
#include <string>
#include <vector>

#include <nccl.h>

#include "belfry/framework/cuda/runtime/cuda_check.h"

// The calls that we need. The list is written once: it declares the table and fills it.
#define BELFRY_NCCL_CALLS(each)                                                                \
  each(ncclGetVersion) each(ncclGetErrorString) each(ncclGetLastError) each(ncclGetUniqueId)   \
      each(ncclCommInitRankConfig) each(ncclCommInitAll) each(ncclCommGetAsyncError)           \
          each(ncclCommAbort) each(ncclCommFinalize) each(ncclCommDestroy) each(ncclAllReduce) \
              each(ncclAllGather) each(ncclSend) each(ncclRecv) each(ncclGroupStart)           \
                  each(ncclGroupEnd) each(ncclCommSplit)

namespace belfry::cuda {

struct NcclLibrary {
#define BELFRY_NCCL_POINTER(call) decltype(&::call) call = nullptr;
  BELFRY_NCCL_CALLS(BELFRY_NCCL_POINTER)
#undef BELFRY_NCCL_POINTER
  int version = 0;      // 22809 is 2.28.9; 0 if it cannot be used: then everything else is null
  std::string why_not;  // one line; "" if it can be used
};

// The library in one of `paths`: the first that the dynamic linker opens. It stays loaded.
NcclLibrary open_nccl(const std::vector<std::string>& paths);

// libnccl.so.2 of this process. The dynamic linker finds it for this module. Otherwise it is next
// to CUDA's library, or in the folder of NCCL's Python package next to that one. Opened at the
// first call; thread safe.
const NcclLibrary& nccl_library();

// Whether a GPU may be several ranks: if the version is 2.30 or later, and the environment variable
// NCCL_MULTI_RANK_GPU_ENABLE is 1.
bool serves_several_ranks(int version);

// Throws CommError for every status but ncclInProgress, with which non-blocking communicators ask
// the caller to try again.
void fail(ncclResult_t status, std::string_view call, const std::string& context);
void fail(const NcclLibrary& nccl, ncclResult_t status, std::string_view call,
          const std::string& context);

}  // namespace belfry::cuda
