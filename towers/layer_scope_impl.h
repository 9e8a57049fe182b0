// What all layers share: checks that name the layer and its line, their scopes, and the type of
// their variables.
#pragma once
#include <string>
#include <string_view>

#include "belfry/framework/base/require.h"
#include "belfry/framework/base/text.h"
#include "belfry/framework/graph/scopes.h"
#include "belfry/towers/tower.h"

namespace belfry {

inline void require_layer(bool condition, std::string_view what, std::string_view name,
                          SourceLine site, const std::string& why) {
  require(condition, what, " layer '", name, "' (built at ", site, "): ", why);
}

// Scopes of one layer.
struct LayerScope {
  LayerScope(Tower& tower, std::string_view what, std::string_view name, At at)
      : site(tower.graph(), at.site), variables(tower.graph(), name) {
    require_layer(!name.empty(), what, name, at.site,
                  "needs a name, the key of its variables in checkpoints");
  }

  SiteScope site;
  VariableScope variables;
};

// The type of variables for tensors like x. Layers cast variables to x's type where they use them.
inline DType variable_dtype(DType dtype) { return is_half(dtype) ? DType::kF32 : dtype; }
inline DType variable_dtype(Output x) { return variable_dtype(x.dtype()); }

inline void require_channels(std::string_view what, std::string_view name, Output x,
                             std::size_t rank, SourceLine site) {
  require_layer(x.shape().rank() == rank, what, name, site,
                cat("takes a tensor of rank ", rank, ", not ", x.type()));
  require_layer(x.shape().back() != kUnknownSize, what, name, site,
                cat("the last dimension of ", x.type(), " must be known"));
}

}  // namespace belfry
