// Transfer: a tensor on its way to another device. Only the transfers pass makes them. Devices in
// one memory space share the tensor; its bytes are reported nevertheless.
#pragma once
#include "belfry/framework/graph/graph.h"

namespace belfry {

extern const Op kTransfer;

}  // namespace belfry
