#include <algorithm>
#include <limits>
#include <numeric>

#include "belfry/framework/base/text.h"
#include "belfry/ops/broadcast_to.h"
#include "belfry/ops/concat.h"
#include "belfry/ops/expand_dims.h"
#include "belfry/ops/kernels/axes.h"
#include "belfry/ops/reshape.h"
#include "belfry/ops/shape_of.h"
#include "belfry/ops/shapes/map_axes.h"
#include "belfry/ops/shapes/triangle.h"
#include "belfry/ops/slice.h"
#include "belfry/ops/split.h"
#include "belfry/ops/transpose.h"
#include "belfry/trainers/onnx/op_writers_impl.h"

namespace belfry::onnx {
namespace {

constexpr std::int64_t kToTheEnd = std::numeric_limits<std::int64_t>::max();

void write_reshape(OnnxGraph& g, const Node& node) {
  g.set(node.output(), g.reshape(g.in(node.input(0)), new_shape(node, node.output().shape())));
}

void write_reshape_like(OnnxGraph& g, const Node& node) {
  const std::string shape = shape_of(g, g.in(node.input(1)));
  g.set(node.output(), g.add("Reshape", {g.in(node.input(0)), shape}));
}

void write_transpose(OnnxGraph& g, const Node& node) {
  Ints order = axes_of(node.options<TransposeOptions>().order, node.input(0).shape().rank());
  if (order.empty()) {
    order.resize(node.input(0).shape().rank());
    std::iota(order.rbegin(), order.rend(), 0);
  }
  g.set(node.output(), g.transpose(g.in(node.input(0)), order));
}

void write_slice(OnnxGraph& g, const Node& node) {
  const auto& [begin, size] = node.options<SliceOptions>();
  if (begin.empty()) return g.set_same(node.output(), node.input(0));  // a scalar
  Ints ends, axes(begin.size());
  for (std::size_t axis = 0; axis < begin.size(); ++axis)
    ends.push_back(size[axis] == -1 ? kToTheEnd : begin[axis] + size[axis]);
  std::iota(axes.begin(), axes.end(), 0);
  g.set(node.output(),
        g.add("Slice", {g.in(node.input(0)), g.ints(begin), g.ints(ends), g.ints(axes)}));
}

void write_split(OnnxGraph& g, const Node& node) {
  const std::size_t axis =
      from_end(node.options<SplitOptions>().axis, node.input(0).shape().rank());
  Names inputs{g.in(node.input(0))};
  Ints sizes;
  for (std::size_t i = 0; i < node.outputs(); ++i) sizes.push_back(node.output_type(i).shape[axis]);
  // Without sizes parts are equal.
  const bool known = std::ranges::find(sizes, kUnknownSize) == sizes.end();
  if (known) inputs.push_back(g.ints(sizes));
  if (!known && !node.options<SplitOptions>().sizes.empty())
    refuse(node, cat("the size of axis ", axis, " of ", node.input(0).type(), " is not known"));
  const Names parts =
      g.add("Split", inputs, {{"axis", static_cast<std::int64_t>(axis)}}, node.outputs());
  for (std::size_t i = 0; i < parts.size(); ++i) g.set(node.output(i), parts[i]);
}

void write_concat(OnnxGraph& g, const Node& node) {
  Layout layout = Layout::kAsInBelfry;
  for (const Output& x : node.inputs())
    if (g.layout_of(x) == Layout::kChannelsFirst) layout = Layout::kChannelsFirst;
  Names inputs;
  for (const Output& x : node.inputs()) inputs.push_back(g.in(x, layout));
  const std::size_t axis =
      from_end(node.options<ConcatOptions>().axis, node.output().shape().rank());
  g.set(node.output(), g.add("Concat", inputs, {{"axis", axis_in(layout, axis)}}), layout);
}

void write_broadcast_to(OnnxGraph& g, const Node& node) {
  const std::string shape = shape_of(g, g.in(node.input(1)));
  g.set(node.output(), g.add("Expand", {g.in(node.input(0)), shape}));
}

// The indices of an axis of n elements that a map shows.
Ints shown_indices(const AxisMap& map, std::int64_t n, std::int64_t size) {
  using enum AxisMap::Kind;
  Ints indices;
  for (std::int64_t i = 0; i < size; ++i) switch (map.kind) {
      case kWrap: indices.push_back(((i - map.a) % n + n) % n); break;
      case kEach: indices.push_back(i / map.step); break;
      case kNearest: indices.push_back(i * n / size); break;
      default: indices.push_back((2 * i + 1) * n / (2 * size));
    }
  return indices;
}

// Maps of the axes of an image or another tensor; each op of ONNX does those of one kind.
class AxisMapper {
 public:
  AxisMapper(OnnxGraph& g, const Node& node)
      : g_(g),
        node_(node),
        layout_(g.layout_of(node.input(0))),
        maps_(node.options<MapAxesOptions>().maps) {}

  void write() {
    name_ = g_.in(node_.input(0), layout_);
    write_strides();
    write_pads("constant", AxisMap::Kind::kConstants);
    write_pads("edge", AxisMap::Kind::kEdge);
    write_pads("reflect", AxisMap::Kind::kReflect);
    write_times();
    for (std::size_t axis = 0; axis < maps_.size(); ++axis) write_indices(axis);
    g_.set(node_.output(), name_, layout_);
  }

 private:
  using Kind = AxisMap::Kind;

  bool is(std::size_t axis, Kind kind) const {
    return maps_[axis].kind == kind && !maps_[axis].is_identity();
  }
  std::int64_t place(std::size_t axis) const { return axis_in(layout_, axis); }

  void write_strides() {
    Ints begins, ends, axes, steps;
    for (std::size_t axis = 0; axis < maps_.size(); ++axis) {
      if (!is(axis, Kind::kStrided)) continue;
      const auto& [kind, a, b, step] = maps_[axis];
      begins.push_back(a != AxisMap::kOpen ? a : step > 0 ? 0 : kToTheEnd);
      ends.push_back(b != AxisMap::kOpen ? b : step > 0 ? kToTheEnd : -kToTheEnd);
      axes.push_back(place(axis));
      steps.push_back(step);
    }
    if (axes.empty()) return;
    name_ = g_.add("Slice", {name_, g_.ints(begins), g_.ints(ends), g_.ints(axes), g_.ints(steps)});
  }

  void write_pads(const char* mode, Kind kind) {
    const std::size_t rank = maps_.size();
    Ints pads(2 * rank);
    bool any = false;
    for (std::size_t axis = 0; axis < rank; ++axis) {
      if (!is(axis, kind)) continue;
      any = true;
      const auto at = static_cast<std::size_t>(place(axis));
      pads[at] = maps_[axis].a;
      pads[rank + at] = maps_[axis].b;
    }
    if (!any) return;
    Names inputs{name_, g_.ints(pads)};
    if (kind == Kind::kConstants)
      inputs.push_back(g_.number(node_.options<MapAxesOptions>().value, node_.output().dtype()));
    name_ = g_.add("Pad", inputs, {{"mode", std::string(mode)}});
  }

  void write_times() {
    Ints times(maps_.size(), 1);
    for (std::size_t axis = 0; axis < maps_.size(); ++axis)
      if (is(axis, Kind::kTimes)) times[static_cast<std::size_t>(place(axis))] = maps_[axis].step;
    if (std::ranges::any_of(times, [](std::int64_t n) { return n != 1; }))
      name_ = g_.add("Tile", {name_, g_.ints(times)});
  }

  void write_indices(std::size_t axis) {
    if (!is(axis, Kind::kWrap) && !is(axis, Kind::kEach) && !is(axis, Kind::kNearest) &&
        !is(axis, Kind::kNearestExact))
      return;
    const std::int64_t n = node_.input(0).shape()[axis], size = node_.output().shape()[axis];
    if (n == kUnknownSize || size == kUnknownSize)
      refuse(node_,
             cat("the size of axis ", axis, " of ", node_.input(0).type(), " must be known"));
    name_ = g_.add("Gather", {name_, g_.ints(shown_indices(maps_[axis], n, size))},
                   {{"axis", place(axis)}});
  }

  OnnxGraph& g_;
  const Node& node_;
  const Layout layout_;
  const std::vector<AxisMap>& maps_;
  std::string name_;
};

void write_map_axes(OnnxGraph& g, const Node& node) { AxisMapper(g, node).write(); }

void write_triangle(OnnxGraph& g, const Node& node) {
  const auto& [upper, diagonal] = node.options<TriangleOptions>();
  const std::string from = g.constant(Tensor(diagonal));
  g.set(node.output(),
        g.add("Trilu", {g.in(node.input(0)), from}, {{"upper", static_cast<std::int64_t>(upper)}}));
}

void write_rank(OnnxGraph& g, const Node& node) {
  g.set(node.output(), g.constant(Tensor(static_cast<std::int64_t>(node.input(0).shape().rank()))));
}

}  // namespace

std::string shape_of(OnnxGraph& g, const std::string& x) { return g.add("Shape", {x}); }

Ints axes_of(const std::vector<int>& axes, std::size_t rank) {
  Ints result;
  for (const int axis : axes) result.push_back(static_cast<std::int64_t>(from_end(axis, rank)));
  return result;
}

Ints new_shape(const Node& node, const Shape& shape) {
  const Ints dims = shape.dims();
  if (std::ranges::count(dims, kUnknownSize) > 1)
    refuse(node, cat("its result ", shape, " has more than one unknown dimension"));
  return dims;  // kUnknownSize is also ONNX's word for a dimension that follows
}

std::vector<OpWriter> shape_writers() {
  return {{&kReshape, write_reshape},
          {&kFlatten, write_reshape},
          {&kExpandDims, write_reshape},
          {&kSqueeze, write_reshape},
          {&kReshapeLike, write_reshape_like},
          {&kTranspose, write_transpose},
          {&kSlice, write_slice},
          {&kSplit, write_split},
          {&kConcat, write_concat},
          {&kBroadcastTo, write_broadcast_to},
          {&kMapAxes, write_map_axes},
          {&kTriangle, write_triangle},
          {&kShapeOf, as_node("Shape")},
          {&kSizeOf, as_node("Size")},
          {&kRankOf, write_rank}};
}

}  // namespace belfry::onnx
