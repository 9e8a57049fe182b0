// Checks of the library, which throw.
#pragma once
#include "belfry/framework/base/error.h"
#include "belfry/framework/base/text.h"

namespace belfry {

// require<E>(condition, parts...) throws E(cat(parts...)) unless `condition` holds; by default an
// InvalidArgument.
using detail::require;

}  // namespace belfry
