#include "belfry/framework/group/mpi_module.h"

#include <belfry_build_identity.h>

#include "belfry/framework/base/error.h"
#include "belfry/framework/base/module.h"
#include "belfry/framework/base/text.h"

namespace belfry {

std::unique_ptr<ProcessGroup> open_mpi() {
#ifdef BELFRY_NO_MPI_MODULE
  throw CommError("this build has no module for MPI (" BELFRY_NO_MPI_MODULE
                  "), and MPI has started several processes");
#else
  const std::string path = module_path("libbelfry_mpi.so");
  std::string why;
  try {
    auto* const open = reinterpret_cast<MpiModuleEntry*>(module_entry(path, kMpiModuleEntry));
    if (ProcessGroup* const group = open(BELFRY_BUILD_IDENTITY, &why))
      return std::unique_ptr<ProcessGroup>(group);
  } catch (const DeviceError& error) {
    why = error.what();
  }
  throw CommError(
      cat("MPI has started several processes, but the module ", path, " does not serve: ", why));
#endif
}

}  // namespace belfry
