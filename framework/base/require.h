// Checks of the library, which throw.
#pragma once
#include "belfry/framework/base/error.h"
#include "belfry/framework/base/option_name.h"
#include "belfry/framework/base/text.h"

namespace belfry {

// require<E>(condition, parts...) throws E(cat(parts...)) unless `condition` holds; by default an
// InvalidArgument.
using detail::require;

// The fields of an error about an option, which the parts name by the_option() or option_name().
template <class... Parts>
ErrorFields about_option(std::string_view option, const Parts&... parts) {
  return {.why = detail::cat(parts...), .option = std::string(option)};
}

}  // namespace belfry
