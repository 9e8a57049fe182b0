// What most sources of the library include, read once. Sources include what they use all the same:
// the preset dev compiles each by itself.
#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "belfry/framework/base/text.h"
#include "belfry/framework/graph/graph.h"
#include "belfry/framework/graph/kernel.h"
#include "belfry/framework/graph/node.h"
#include "belfry/framework/graph/op.h"
