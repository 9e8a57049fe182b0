// Read once per build and given to every test source: GoogleTest, the standard headers of our own
// headers, and what most tests are written with. Sources include what they use all the same.
#pragma once
#include <algorithm>
#include <atomic>
#include <cmath>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <limits>
#include <map>
#include <memory>
#include <numeric>
#include <random>
#include <set>
#include <span>
#include <string>
#include <thread>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "belfry/framework/core_ops/add_n.h"
#include "belfry/framework/core_ops/assign.h"
#include "belfry/framework/core_ops/constant.h"
#include "belfry/framework/core_ops/identity.h"
#include "belfry/framework/core_ops/placeholder.h"
#include "belfry/framework/gradients/gradients.h"
#include "belfry/framework/graph/scopes.h"
#include "belfry/framework/run/session.h"
#include "belfry/ops/operand.h"
