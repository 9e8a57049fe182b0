// The MPI module, libbelfry_mpi.so, which is loaded only if MPI started this process.
#pragma once
#include <memory>
#include <string>

#include "belfry/framework/group/group.h"

namespace belfry {

// The name and type of the module's entry. `wanted` is the identity of the library's build. Returns
// null and sets `why` if the module is of another build, or MPI cannot start.
using MpiModuleEntry = ProcessGroup*(const char* wanted, std::string* why);
inline constexpr const char* kMpiModuleEntry = "belfry_open_mpi";

// Initialises MPI. Throws CommError saying what to do if there is no module, or it cannot be
// loaded.
std::unique_ptr<ProcessGroup> open_mpi();

}  // namespace belfry
