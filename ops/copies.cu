// Ops that move elements or write shapes, in one source like those of ops/pointwise.cu.
#include "belfry/framework/base/require.h"
#include "belfry/framework/cuda/kernels/fill.h"
#include "belfry/framework/cuda/kernels/gpu_kernel.h"
#include "belfry/framework/cuda/kernels/strides.h"
#include "belfry/ops/concat.h"
#include "belfry/ops/kernels/box_copy.h"
#include "belfry/ops/kernels/transposed.h"
#include "belfry/ops/shape_of.h"
#include "belfry/ops/slice.h"
#include "belfry/ops/split.h"
#include "belfry/ops/transpose.h"

namespace belfry::cuda {
namespace {

// Adds a dimension outside of `dims`, joined to the last one where that is possible.
void append(std::vector<Strides::Dimension>& dims, Strides::Dimension dim) {
  if (dim.size == 1) return;
  if (!dims.empty()) {
    Strides::Dimension& last = dims.back();
    if (dim.a_stride == last.a_stride * last.size && dim.b_stride == last.b_stride * last.size) {
      last.size *= dim.size;
      return;
    }
  }
  dims.push_back(dim);
}

// A box of bytes: dense pieces and their places.
struct Box {
  explicit Box(const BoxCopy& copy) : run(copy.run()), from(copy.from()), to(copy.to()) {
    for (const BoxCopy::Dim& dim : copy.dims()) append(dims, {dim.extent, dim.from, dim.to});
    finish();
  }
  Box(std::int64_t run_bytes, std::vector<Strides::Dimension> dimensions)
      : run(run_bytes), dims(std::move(dimensions)) {
    finish();
  }

  // The bits of all addresses and strides: the unit copied at once must divide them.
  std::uint64_t addresses(const void* source, const void* destination) const {
    return strides | reinterpret_cast<std::uintptr_t>(source) |
           reinterpret_cast<std::uintptr_t>(destination);
  }

  std::int64_t run, from = 0, to = 0;
  std::vector<Strides::Dimension> dims;
  std::uint64_t strides = 0;  // the bits of all byte counts above
  bool empty = false;

 private:
  void finish() {
    strides = static_cast<std::uint64_t>(run | from | to);
    empty = run == 0;
    for (const Strides::Dimension& dim : dims) {
      strides |= static_cast<std::uint64_t>(dim.a_stride | dim.b_stride);
      empty = empty || dim.size == 0;
    }
    require(dims.size() <= Strides::kMost, "GPUs copy boxes of at most ", Strides::kMost,
            " dimensions that are apart; reshape the tensor");
  }
};

// Copies boxes, a unit per thread.
template <class Unit>
struct CopyBoxes {
  using Shared = Nothing;
  static constexpr int kMost = 14;  // keeps parameters below 4 KiB
  struct Part {
    const Unit* from;
    Unit* to;
    std::int64_t units, first_block;
    Strides strides;
  };
  int parts = 0;
  Part part[kMost];

  BELFRY_HD void operator()(const Block& block, Shared&) const {
    int at = 0;
    while (at + 1 < parts && part[at + 1].first_block <= block.index) ++at;
    const Part& p = part[at];
    block.each([&](int thread) {
      const std::int64_t i = (block.index - p.first_block) * block.threads + thread;
      if (i >= p.units) return;
      const auto [from, to] = p.strides.at(i);
      p.to[to] = p.from[from];
    });
  }
};

template <class Unit, class From, class To>
void copy_by(KernelQueue& queue, const std::vector<Box>& boxes, const From& from, const To& to) {
  constexpr auto kUnit = static_cast<std::int64_t>(sizeof(Unit));
  CopyBoxes<Unit> kernel;
  Grid grid{.blocks = 0};
  for (std::size_t i = 0; i < boxes.size(); ++i) {
    const Box& box = boxes[i];
    if (box.empty) continue;
    typename CopyBoxes<Unit>::Part& part = kernel.part[kernel.parts++];
    std::array<Strides::Dimension, Strides::kMost> dims{};
    for (std::size_t d = 0; d < box.dims.size(); ++d)
      dims[d] = {box.dims[d].size, box.dims[d].a_stride / kUnit, box.dims[d].b_stride / kUnit};
    part.strides = Strides(box.run / kUnit, std::span(dims).first(box.dims.size()));
    part.from = reinterpret_cast<const Unit*>(static_cast<const char*>(from(i)) + box.from);
    part.to = reinterpret_cast<Unit*>(static_cast<char*>(to(i)) + box.to);
    part.units = part.strides.elements();
    part.first_block = grid.blocks;
    grid.blocks += grid_for(part.units).blocks;
    if (kernel.parts < CopyBoxes<Unit>::kMost) continue;
    launch(queue, kernel, grid);
    kernel.parts = 0;
    grid.blocks = 0;
  }
  launch(queue, kernel, grid);
}

// from(i) and to(i) are the addresses of box i's tensors. 16, 4 or 1 bytes are copied at once.
template <class From, class To>
void copy_boxes(KernelQueue& queue, const std::vector<Box>& boxes, const From& from, const To& to) {
  std::uint64_t all = 0;
  for (std::size_t i = 0; i < boxes.size(); ++i)
    if (!boxes[i].empty) all |= boxes[i].addresses(from(i), to(i));
  if (all % 16 == 0)
    copy_by<Pack<std::uint32_t>>(queue, boxes, from, to);
  else if (all % 4 == 0)
    copy_by<std::uint32_t>(queue, boxes, from, to);
  else
    copy_by<std::uint8_t>(queue, boxes, from, to);
}

// Box i goes from input i, or from input 0, to output i, or to output 0.
enum class Ends { kOneToOne, kManyToOne, kOneToMany };

QueueRun copying(std::vector<Box> boxes, Ends ends) {
  return [boxes = std::move(boxes), ends](const KernelPointers& p, KernelQueue& queue) {
    copy_boxes(
        queue, boxes,
        [&](std::size_t i) { return p.input<void>(ends == Ends::kManyToOne ? i : 0); },
        [&](std::size_t i) { return p.output<void>(ends == Ends::kOneToMany ? i : 0); });
  };
}

std::vector<std::int64_t> offset_along(std::size_t rank, std::size_t axis, std::int64_t offset) {
  std::vector<std::int64_t> result(rank);
  result[axis] = offset;
  return result;
}

QueueRun concat(KernelPlan& plan) {
  const Shape& out = plan.output().shape;
  const std::size_t axis = from_end(plan.options<ConcatOptions>().axis, out.rank());
  std::vector<Box> boxes;
  std::int64_t offset = 0;
  for (std::size_t i = 0; i < plan.inputs(); ++i) {
    const Shape& x = plan.input(i).shape;
    boxes.emplace_back(
        BoxCopy(x, x, {}, out, offset_along(out.rank(), axis, offset), plan.dtype()));
    offset += x[axis];
  }
  return copying(std::move(boxes), Ends::kManyToOne);
}

QueueRun concat_grad(KernelPlan& plan) {
  const auto& options = plan.options<ConcatGradOptions>();
  const Shape& out = plan.output().shape;
  const std::size_t axis = from_end(options.axis, out.rank());
  std::int64_t offset = 0;
  for (int i = 0; i < options.part; ++i)
    offset += plan.input(1 + static_cast<std::size_t>(i)).shape[axis];
  return copying({Box(BoxCopy(out, plan.input(0).shape, offset_along(out.rank(), axis, offset), out,
                              {}, plan.dtype()))},
                 Ends::kOneToOne);
}

QueueRun split(KernelPlan& plan) {
  const Shape& x = plan.input(0).shape;
  const std::size_t axis = from_end(plan.options<SplitOptions>().axis, x.rank());
  std::vector<Box> boxes;
  std::int64_t offset = 0;
  for (std::size_t i = 0; i < plan.outputs(); ++i) {
    const Shape& part = plan.output(i).shape;
    boxes.emplace_back(
        BoxCopy(part, x, offset_along(x.rank(), axis, offset), part, {}, plan.dtype()));
    offset += part[axis];
  }
  return copying(std::move(boxes), Ends::kOneToMany);
}

QueueRun slice(KernelPlan& plan) {
  const Shape& out = plan.output().shape;
  return copying({Box(BoxCopy(out, plan.input(0).shape, plan.options<SliceOptions>().begin, out, {},
                              plan.dtype()))},
                 Ends::kOneToOne);
}

QueueRun slice_grad(KernelPlan& plan) {
  const Shape& box = plan.input(0).shape;
  const TensorType& whole = plan.output();
  const auto& begin = plan.options<SliceOptions>().begin;
  return [copy = copying({Box(BoxCopy(box, box, {}, whole.shape, begin, whole.dtype))},
                         Ends::kOneToOne),
          bytes = whole.bytes()](const KernelPointers& p, KernelQueue& queue) {
    fill_zeros(queue, p.output<void>(), bytes);
    copy(p, queue);
  };
}

// Copies planes whose rows are dense in x and whose columns are dense in y, by tiles. Element (i,
// j) is x[i + j * from] and y[i * to + j], after the offsets of `planes`.
template <class Bits>
struct TransposePlanes {
  static constexpr int kTile = 32, kThreads = 256, kLines = kThreads / kTile;
  struct Shared {
    Bits tile[kTile][kTile + 1];  // padded, so that a column is in different banks
  };
  const Bits* x;
  Bits* y;
  std::int64_t rows, columns, from, to;
  Strides planes;

  BELFRY_HD void operator()(const Block& block, Shared& shared) const {
    const std::int64_t down = (rows + kTile - 1) / kTile, across = (columns + kTile - 1) / kTile;
    const std::int64_t row = block.index % down * kTile;
    const std::int64_t column = block.index / down % across * kTile;
    const auto [source, destination] = planes.at(block.index / down / across);
    block.each([&](int thread) {
      const std::int64_t i = row + thread % kTile;
      for (int line = thread / kTile; line < kTile; line += kLines)
        if (i < rows && column + line < columns)
          shared.tile[line][thread % kTile] = x[source + i + (column + line) * from];
    });
    block.each([&](int thread) {
      const std::int64_t j = column + thread % kTile;
      for (int line = thread / kTile; line < kTile; line += kLines)
        if (row + line < rows && j < columns)
          y[destination + (row + line) * to + j] = shared.tile[thread % kTile][line];
    });
  }

  std::int64_t blocks() const {
    return (rows + kTile - 1) / kTile * ((columns + kTile - 1) / kTile) * planes.elements();
  }
};

// dims.front() is dense in the output, another one in the input.
template <class Bits>
QueueRun transpose_planes(const std::vector<Strides::Dimension>& dims) {
  std::vector<Strides::Dimension> others(dims.begin() + 1, dims.end());
  const auto dense = std::ranges::find(others, 1, &Strides::Dimension::a_stride);
  const Strides::Dimension rows = *dense;
  others.erase(dense);
  TransposePlanes<Bits> planes{.rows = rows.size,
                               .columns = dims[0].size,
                               .from = dims[0].a_stride,
                               .to = rows.b_stride,
                               .planes = Strides(1, others)};
  return [planes](const KernelPointers& p, KernelQueue& queue) {
    TransposePlanes<Bits> kernel = planes;
    kernel.x = p.input<Bits>(0);
    kernel.y = p.output<Bits>();
    launch(queue, kernel, {.blocks = kernel.blocks(), .threads = kernel.kThreads});
  };
}

QueueRun transpose(KernelPlan& plan) {
  const Shape &x = plan.input(0).shape, &y = plan.output().shape;
  if (y.elements() == 0) return [](const KernelPointers&, KernelQueue&) {};
  const auto unit = static_cast<std::int64_t>(size_of(plan.dtype()));
  const std::vector<TransposedDim> outer_first =
      transposed_dims(x, y, plan.options<TransposeOptions>().order);
  std::vector<Strides::Dimension> dims;
  for (auto dim = outer_first.rbegin(); dim != outer_first.rend(); ++dim)
    append(dims, {dim->size, dim->from, dim->to});
  if (dims.empty() || dims[0].a_stride == 1) {
    const std::int64_t run = dims.empty() ? 1 : dims[0].size;
    if (!dims.empty()) dims.erase(dims.begin());
    for (Strides::Dimension& dim : dims) dim = {dim.size, dim.a_stride * unit, dim.b_stride * unit};
    return copying({Box(run * unit, dims)}, Ends::kOneToOne);
  }
  switch (unit) {
    case 1: return transpose_planes<std::uint8_t>(dims);
    case 4: return transpose_planes<std::uint32_t>(dims);
    case 8: return transpose_planes<std::uint64_t>(dims);
    default: return {};
  }
}

// Numbers known before a run.
struct WriteNumbers {
  using Shared = Nothing;
  static constexpr int kMost = 64;
  std::int64_t numbers[kMost];
  int count = 0;
  std::int64_t* y;

  BELFRY_HD void operator()(const Block& block, Shared&) const {
    block.each([&](int thread) {
      if (thread < count) y[thread] = numbers[thread];
    });
  }
};

QueueRun write(std::span<const std::int64_t> numbers) {
  require(numbers.size() <= WriteNumbers::kMost, "the shape of a tensor of ", numbers.size(),
          " dimensions on a GPU");
  WriteNumbers known{};
  for (const std::int64_t number : numbers) known.numbers[known.count++] = number;
  return [known](const KernelPointers& p, KernelQueue& queue) {
    WriteNumbers kernel = known;
    kernel.y = p.output<std::int64_t>();
    launch(queue, kernel, {.blocks = 1, .threads = WriteNumbers::kMost});
  };
}

QueueRun shape(KernelPlan& plan) { return write(plan.input(0).shape.dims()); }
QueueRun size(KernelPlan& plan) { return write(std::array{plan.input(0).shape.elements()}); }
QueueRun rank(KernelPlan& plan) {
  return write(std::array{static_cast<std::int64_t>(plan.input(0).shape.rank())});
}

const GpuKernel kernels_of_ops[] = {
    {kConcat, concat, kTakesHalf},        {kConcatGrad, concat_grad, kTakesHalf},
    {kSplit, split, kTakesHalf},          {kSlice, slice, kTakesHalf},
    {kSliceGrad, slice_grad, kTakesHalf}, {kTranspose, transpose},
    {kShapeOf, shape, kTakesHalf},        {kSizeOf, size, kTakesHalf},
    {kRankOf, rank, kTakesHalf},
};

}  // namespace
}  // namespace belfry::cuda
