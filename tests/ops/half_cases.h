// Which ops half_test.cc tries on f16 and bf16.
#pragma once
#include <span>
#include <string>
#include <vector>

#include "belfry/framework/graph/op.h"

namespace belfry {
namespace half_test {

// The names of those of `ops` that have no case in half_test.cc, and are not excepted there.
std::vector<std::string> without_case(std::span<const Op* const> ops);

}  // namespace half_test
}  // namespace belfry
