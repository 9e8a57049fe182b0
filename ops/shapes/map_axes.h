// MapAxes: a tensor that shows the elements of another in an order that each axis states for
// itself. pad.h, rearrange.h and resize.h are this op.
#pragma once
#include <limits>
#include <string>

#include "belfry/framework/graph/graph.h"

namespace belfry {

extern const Op kMapAxes;
extern const Op kMapAxesGrad;

// Which index of x each index i of one axis shows. x has n of them.
struct AxisMap {
  enum class Kind : std::uint8_t {
    kStrided,       // a : b : step, as in Python
    kConstants,     // `a` constants, x, `b` constants
    kEdge,          // the same with the first and the last index of x instead of constants
    kReflect,       // the same with x mirrored at its first and last index
    kWrap,          // the same with x repeated; a and b may be negative
    kTimes,         // all indices `step` times
    kEach,          // each index `step` times
    kNearest,       // floor(i n / a), for a result of size a
    kNearestExact,  // floor((i + 1/2) n / a)
  };
  // Begin or end of a slice that is not given.
  static constexpr std::int64_t kOpen = std::numeric_limits<std::int64_t>::min();

  Kind kind = Kind::kStrided;
  std::int64_t a = kOpen, b = kOpen, step = 1;

  // Shows x as it is, whatever its size.
  bool is_identity() const;
  std::string str() const;  // "::-1", "edge 1 + 2"
  bool operator==(const AxisMap&) const = default;
};

struct MapAxesOptions {
  std::vector<AxisMap> maps;  // one per axis
  double value = 0;           // of constants
};

struct MapAxesGradOptions {
  std::vector<AxisMap> maps;
  Shape x;  // as far as it is known
};

// x unchanged if all maps are identities. The gradient of an element of x is the sum of those of
// its copies, in their order.
Output map_axes(Output x, std::vector<AxisMap> maps, double value = 0, At at = {});

}  // namespace belfry
