#include "belfry/ops/shapes/map_axes.h"

#include <algorithm>
#include <cstring>
#include <optional>

#include "belfry/framework/base/text.h"
#include "belfry/framework/core_ops/constant.h"
#include "belfry/framework/graph/shards.h"
#include "belfry/framework/graph/stored_options.h"
#include "belfry/ops/kernels/bits.h"
#include "belfry/ops/kernels/typed_kernels.h"
#include "belfry/ops/shapes/axis_walk_impl.h"

namespace belfry {

bool AxisMap::is_identity() const {
  return kind == Kind::kStrided && step == 1 && b == kOpen && (a == kOpen || a == 0);
}

std::string AxisMap::str() const {
  const auto bound = [](std::int64_t at) { return at == kOpen ? std::string() : cat(at); };
  switch (kind) {
    case Kind::kStrided: return cat(bound(a), ":", bound(b), ":", step);
    case Kind::kTimes: return cat("tile ", step);
    case Kind::kEach: return cat("repeat ", step);
    case Kind::kNearest: return cat("nearest ", a);
    case Kind::kNearestExact: return cat("nearest exact ", a);
    case Kind::kConstants: return cat("fill ", a, " + ", b);
    case Kind::kEdge: return cat("edge ", a, " + ", b);
    case Kind::kReflect: return cat("reflect ", a, " + ", b);
    default: return cat("wrap ", a, " + ", b);
  }
}

namespace {

using MapKind = AxisMap::Kind;
using AxisMaps = std::vector<AxisMap>;

void check_map(const ShapeContext& c, const AxisMap& map, const Shape& x, std::size_t axis) {
  const std::int64_t n = x[axis];
  const bool pads = map.kind == MapKind::kConstants || map.kind == MapKind::kEdge ||
                    map.kind == MapKind::kReflect;
  c.require(!pads || (map.a >= 0 && map.b >= 0), "a padding of ", map.a, " or ", map.b,
            " is negative");
  c.require(map.kind != MapKind::kStrided || map.step != 0, "the step of the slice of axis ", axis,
            " is 0");
  if (n == kUnknownSize) return;
  if (map.kind == MapKind::kReflect)
    c.require(map.a < n && map.b < n, "mirrors ", map.a, " and ", map.b, " elements of axis ", axis,
              " of ", x, ", but it has only ", n - 1, " beside its edge");
  const std::int64_t size = mapped_size(map, n);
  c.require(size >= 0, "the result would have size ", size, " along axis ", axis);
  c.require(n > 0 || size == 0 || map.kind == MapKind::kConstants, "axis ", axis, " of ", x,
            " has nothing to repeat");
}

Shape mapped_shape(const ShapeContext& c, const AxisMaps& maps, const Shape& x) {
  c.require(maps.size() == x.rank(), "has ", maps.size(), " maps for ", x);
  Shape out = x;
  for (std::size_t axis = 0; axis < x.rank(); ++axis) {
    check_map(c, maps[axis], x, axis);
    out[axis] = mapped_size(maps[axis], x[axis]);
  }
  return out;
}

OutputTypes map_axes_shape(const ShapeContext& c) {
  return {mapped_shape(c, c.options<MapAxesOptions>().maps, c.input(0))};
}

// Inputs: the gradient of the result, and x if nothing else says its shape.
OutputTypes map_axes_grad_shape(const ShapeContext& c) {
  const auto& [maps, known] = c.options<MapAxesGradOptions>();
  Shape x = known;
  c.require(c.inputs() <= 2 && c.input(0).rank() == x.rank() && maps.size() == x.rank(),
            "needs the gradient of a tensor like ", x, ", not ", c.inputs(), " inputs");
  for (std::size_t axis = 0; axis < x.rank(); ++axis)
    if (x[axis] == kUnknownSize)
      x[axis] = maps[axis].is_identity() ? c.input(0)[axis]
                : c.inputs() == 2        ? c.input(1)[axis]
                                         : kUnknownSize;
  const Shape mapped = mapped_shape(c, maps, x);
  c.require(c.input(0).compatible(mapped), "the gradient has shape ", c.input(0),
            ", but the result ", mapped);
  return {x};
}

// The map that undoes `map`, if it shows no index of x twice.
std::optional<AxisMap> inverse_map(const AxisMap& map, std::int64_t n) {
  if (map.is_identity() || map == AxisMap{.step = -1}) return map;
  if (map.kind == MapKind::kWrap && map.b == -map.a)
    return AxisMap{.kind = MapKind::kWrap, .a = -map.a, .b = map.a};
  if (map.kind == MapKind::kConstants && n != kUnknownSize)
    return AxisMap{.a = map.a, .b = map.a + n};
  return {};
}

std::vector<Output> map_axes_gradient(const Node& node, std::span<const Output> grads) {
  const AxisMaps& maps = node.options<MapAxesOptions>().maps;
  const Shape& x = node.input(0).shape();
  AxisMaps back;
  bool certain = true;
  for (std::size_t axis = 0; axis < maps.size(); ++axis) {
    const std::optional<AxisMap> map = inverse_map(maps[axis], x[axis]);
    if (map) back.push_back(*map);
    certain = certain && (maps[axis].is_identity() || x[axis] != kUnknownSize);
  }
  if (back.size() == maps.size()) return {map_axes(grads[0], std::move(back))};
  std::vector<Output> inputs{grads[0]};
  if (!certain) inputs.push_back(node.input(0));
  return {node.graph()
              .add(kMapAxesGrad, inputs, {}, NodeOptions(MapAxesGradOptions{maps, x}))
              .output()};
}

std::vector<Output> map_axes_grad_gradient(const Node& node, std::span<const Output> grads) {
  std::vector<Output> result(node.inputs().size());
  result[0] = map_axes(grads[0], node.options<MapAxesGradOptions>().maps);
  return result;
}

// Shards have separate rows if these stay in place.
template <class Options>
Sharding map_axes_shards(const ShardContext& c) {
  const AxisMaps& maps = c.node.options<Options>().maps;
  return !maps.empty() && maps[0].is_identity() ? row_shards(c, ~0u) : Sharding();
}

// The indices along one axis, and the distances in elements from one to the next.
struct MappedAxis {
  std::vector<std::int64_t> sources;
  std::int64_t from = 1, to = 1;
};

// All axes but a dense piece of `run` elements, which is copied or added as one.
struct MappedAxes {
  MappedAxes(const AxisMaps& maps, const Shape& x) : walks(axis_walks(maps, x)) {
    while (walks.size() > 1 && walks.back().is_identity()) {
      run *= walks.back().n;
      walks.pop_back();
    }
    if (walks.empty()) walks.push_back({});
    axes.resize(walks.size());
    std::int64_t from = run, to = run;
    for (std::size_t axis = walks.size(); axis-- > 0;) {
      axes[axis].from = from;
      axes[axis].to = to;
      for (std::int64_t i = 0; i < walks[axis].size; ++i)
        axes[axis].sources.push_back(walks[axis].source(i));
      from *= walks[axis].n;
      to *= walks[axis].size;
    }
  }
  const MappedAxis& last() const { return axes.back(); }

  std::vector<AxisWalk> walks;
  std::vector<MappedAxis> axes;
  std::int64_t run = 1;
};

template <class Bits>
BELFRY_KERNEL void take_elements(const Bits* from, const std::int64_t* sources, std::int64_t begin,
                                 std::int64_t end, Bits* to) {
  for (std::int64_t i = begin; i < end; ++i) to[i] = from[sources[i]];
}

// Copies elements of the size of Bits.
template <class Bits>
class CopyByMaps {
 public:
  CopyByMaps(MappedAxes mapped, Bits constant) : mapped_(std::move(mapped)), constant_(constant) {
    const std::vector<std::int64_t>& sources = mapped_.last().sources;
    for (std::size_t i = 0; i < sources.size(); ++i) {
      const auto at = static_cast<std::int64_t>(i);
      const bool continues =
          i > 0 && (sources[i] == -1 ? sources[i - 1] == -1
                                     : sources[i - 1] != -1 && sources[i] == sources[i - 1] + 1);
      if (continues)
        pieces_.back().end = at + 1;
      else
        pieces_.push_back({sources[i], at, at + 1});
    }
    scattered_ = mapped_.run == 1 && 4 * pieces_.size() > sources.size() &&
                 std::ranges::find(sources, -1) == sources.end();
  }

  void operator()(const KernelPointers& p) const {
    copy(0, p.begin(), p.end(), p.input<Bits>(0), p.output<Bits>());
  }

 private:
  // Neighbours in the result that are neighbours in x, or constants.
  struct Piece {
    std::int64_t source, begin, end;
  };

  void copy(std::size_t depth, std::int64_t begin, std::int64_t end, const Bits* from,
            Bits* to) const {
    const MappedAxis& axis = mapped_.axes[depth];
    if (depth + 1 == mapped_.axes.size()) return copy_last(begin, end, from, to);
    const auto inner = static_cast<std::int64_t>(mapped_.axes[depth + 1].sources.size());
    for (std::int64_t i = begin; i < end; ++i) {
      const std::int64_t source = axis.sources[static_cast<std::size_t>(i)];
      if (source < 0)
        std::fill_n(to + i * axis.to, axis.to, constant_);
      else
        copy(depth + 1, 0, inner, from + source * axis.from, to + i * axis.to);
    }
  }

  void copy_last(std::int64_t begin, std::int64_t end, const Bits* from, Bits* to) const {
    const std::int64_t run = mapped_.run;
    if (scattered_) return take_elements(from, mapped_.last().sources.data(), begin, end, to);
    for (const Piece& piece : pieces_) {
      const std::int64_t first = std::max(begin, piece.begin), last = std::min(end, piece.end);
      if (first >= last) continue;
      if (piece.source < 0)
        std::fill_n(to + first * run, (last - first) * run, constant_);
      else
        std::memcpy(to + first * run, from + (piece.source + first - piece.begin) * run,
                    static_cast<std::size_t>((last - first) * run) * sizeof(Bits));
    }
  }

  MappedAxes mapped_;
  Bits constant_;
  std::vector<Piece> pieces_;
  bool scattered_ = false;
};

template <class Bits>
KernelRun copy_by_maps(const KernelPlan& plan) {
  const auto& options = plan.options<MapAxesOptions>();
  const Tensor value = scalar_tensor(options.value, plan.dtype());
  Bits constant;
  std::memcpy(&constant, value.raw(), sizeof constant);
  return CopyByMaps<Bits>(MappedAxes(options.maps, plan.input(0).shape), constant);
}

KernelRun map_axes_cpu(KernelPlan& plan) {
  return visit_bits(plan.dtype(), [&]<class Bits>(Bits) { return copy_by_maps<Bits>(plan); });
}

// Calls element(i, from) for each element i of rows [begin, end) of the result, and the element of
// x that it shows, or -1.
template <class Element>
void each_mapped(const std::vector<AxisWalk>& walks, std::int64_t begin, std::int64_t end,
                 const Element& element) {
  std::int64_t row = 1;
  for (std::size_t axis = 1; axis < walks.size(); ++axis) row *= walks[axis].size;
  for (std::int64_t i = begin * row; i < end * row; ++i) {
    std::int64_t rest = i, from = 0, stride = 1;
    for (std::size_t axis = walks.size(); axis-- > 0; rest /= walks[axis].size) {
      const std::int64_t source = walks[axis].source(rest % walks[axis].size);
      from = from < 0 || source < 0 ? -1 : from + source * stride;
      stride *= walks[axis].n;
    }
    element(i, from);
  }
}

KernelRun map_axes_reference(KernelPlan& plan) {
  const auto& options = plan.options<MapAxesOptions>();
  const std::size_t unit = size_of(plan.dtype());
  return [=, walks = axis_walks(options.maps, plan.input(0).shape),
          value = scalar_tensor(options.value, plan.dtype())](const KernelPointers& p) {
    each_mapped(walks, p.begin(), p.end(), [&](std::int64_t i, std::int64_t from) {
      const std::byte* const source =
          from < 0 ? value.raw() : p.input<std::byte>(0) + from * static_cast<std::int64_t>(unit);
      std::memcpy(p.output<char>() + i * static_cast<std::int64_t>(unit), source, unit);
    });
  };
}

template <class T>
BELFRY_KERNEL void add_mapped_run(const T* from, std::int64_t count, T* to) {
  BELFRY_INDEPENDENT
  for (std::int64_t i = 0; i < count; ++i) to[i] += from[i];
}

template <class T>
BELFRY_KERNEL void add_mapped(const T* from, const std::int64_t* sources, std::int64_t count,
                              T* to) {
  for (std::int64_t i = 0; i < count; ++i)
    if (sources[i] >= 0) to[sources[i]] += from[i];
}

// Adds rows of dy to the rows of x that they show.
template <class T>
class AddByMaps {
 public:
  explicit AddByMaps(MappedAxes mapped) : mapped_(std::move(mapped)) {}

  void operator()(const KernelPointers& p) const {
    const MappedAxis& rows = mapped_.axes[0];
    const T* const dy = p.input<T>(0);
    T* const dx = p.output<T>();
    std::fill(dx + p.begin() * rows.from, dx + p.end() * rows.from, T(0));
    for (std::int64_t j = p.begin(); j < p.end(); ++j) {
      const AxisCopies copies = mapped_.walks[0].copies(j);
      for (std::int64_t k = 0; k < copies.count; ++k)
        add(1, dy + copies.at(k) * rows.to, dx + j * rows.from);
    }
  }

 private:
  void add(std::size_t depth, const T* from, T* to) const {
    if (depth == mapped_.axes.size()) return add_mapped_run(from, mapped_.run, to);
    const MappedAxis& axis = mapped_.axes[depth];
    const auto size = static_cast<std::int64_t>(axis.sources.size());
    if (depth + 1 == mapped_.axes.size() && mapped_.run == 1)
      return add_mapped(from, axis.sources.data(), size, to);
    for (std::int64_t i = 0; i < size; ++i)
      if (const std::int64_t source = axis.sources[static_cast<std::size_t>(i)]; source >= 0)
        add(depth + 1, from + i * axis.to, to + source * axis.from);
  }

  MappedAxes mapped_;
};

KernelRun map_axes_grad_cpu(KernelPlan& plan) {
  return visit_floating(plan.dtype(), [&]<class T>(T) -> KernelRun {
    return AddByMaps<T>(MappedAxes(plan.options<MapAxesGradOptions>().maps, plan.output().shape));
  });
}

KernelRun map_axes_grad_reference(KernelPlan& plan) {
  const Shape& x = plan.output().shape;
  const std::int64_t row = x.rank() == 0 ? 1 : x.product(1, x.rank());
  const std::int64_t rows = plan.input(0).shape.rank() == 0 ? 1 : plan.input(0).shape[0];
  return typed_kernel(
      plan, [row, rows, walks = axis_walks(plan.options<MapAxesGradOptions>().maps, x)]<class T>(
                T, const KernelPointers& p) {
        T* const dx = p.output<T>();
        std::fill(dx + p.begin() * row, dx + p.end() * row, T(0));
        each_mapped(walks, 0, rows, [&](std::int64_t i, std::int64_t from) {
          if (from >= p.begin() * row && from < p.end() * row) dx[from] += p.input<T>(0)[i];
        });
      });
}

}  // namespace

const Op kMapAxes{.name = "MapAxes",
                  .inputs = 1,
                  .shape = map_axes_shape,
                  .gradient = map_axes_gradient,
                  .split = WorkSplit::kRows,
                  .shards = map_axes_shards<MapAxesOptions>,
                  .cpu = map_axes_cpu,
                  .reference = map_axes_reference,
                  .half = true};
const Op kMapAxesGrad{.name = "MapAxesGrad",
                      .inputs = kVariadicInputs,
                      .shape = map_axes_grad_shape,
                      .gradient = map_axes_grad_gradient,
                      .split = WorkSplit::kRows,
                      .shards = map_axes_shards<MapAxesGradOptions>,
                      .cpu = map_axes_grad_cpu,
                      .reference = map_axes_grad_reference};
const StoredOptions<MapAxesOptions> kStoredMapAxes(kMapAxes);
const StoredOptions<MapAxesGradOptions> kStoredMapAxesGrad(kMapAxesGrad);

Output map_axes(Output x, std::vector<AxisMap> maps, double value, At at) {
  if (maps.size() == x.shape().rank() && std::ranges::all_of(maps, &AxisMap::is_identity)) return x;
  NodeOptions options(MapAxesOptions{std::move(maps), value});
  return x.graph().add(kMapAxes, {x}, at, std::move(options)).output();
}

}  // namespace belfry
