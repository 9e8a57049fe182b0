#include "belfry/ops/updates/global_norm.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <map>

#include "belfry/framework/base/require.h"
#include "belfry/framework/graph/scopes.h"
#include "belfry/ops/cast.h"
#include "belfry/ops/operand.h"
#include "belfry/ops/updates/square_tree.h"

namespace belfry {
namespace {

constexpr const char* kAboutGradients = "it is about gradients";
constexpr const char* kAboutProcesses = "it serves sums over processes, which hosts make";

OutputTypes sums_of_squares_shape(const ShapeContext& c) {
  const auto& [positions, count] = c.options<SumsOfSquaresOptions>();
  c.require(c.inputs() > 0, "needs at least one tensor");
  for (std::size_t i = 0; i < c.inputs(); ++i) {
    c.require_floating(i);
    c.require(!is_half(c.dtype(i)), "tensor ", i, " is ", name_of(c.dtype(i)),
              "; cast it to f32, so that all kernels add along one tree");
  }
  c.require(positions.size() == c.inputs() && std::ranges::is_sorted(positions, std::less_equal()),
            "needs a position for each of ", c.inputs(), " tensors, in rising order");
  c.require(positions.front() >= 0 && positions.back() < count, "the positions are not in [0, ",
            count, ")");
  return {{Shape{count}, DType::kF64}};
}

// Sums all lanes into lanes[0].
BELFRY_HD double fold_squares(double* lanes) {
  for (int half = kernels::kSquareLanes / 2; half > 0; half /= 2)
    for (int l = 0; l < half; ++l) lanes[l] += lanes[l + half];
  return lanes[0];
}

// The sum of squares of one part.
template <class T>
BELFRY_KERNEL double squares_of_part(const T* x, std::int64_t n) {
  double lanes[kernels::kSquareLanes] = {};
  for (std::int64_t first = 0; first < n; first += kernels::kSquareLanes) {
    const int count =
        static_cast<int>(n - first < kernels::kSquareLanes ? n - first : kernels::kSquareLanes);
    for (int l = 0; l < count; ++l) {
      const double value = static_cast<double>(x[first + l]);
      lanes[l] += value * value;
    }
  }
  return fold_squares(lanes);
}

template <class T>
double squares_in_tree(const T* x, std::int64_t n) {
  double lanes[kernels::kSquareLanes] = {};
  for (std::int64_t part = 0; part < kernels::square_parts(n); ++part) {
    const std::int64_t first = part * kernels::kSquarePart;
    lanes[part % kernels::kSquareLanes] +=
        squares_of_part(x + first, std::min(kernels::kSquarePart, n - first));
  }
  return fold_squares(lanes);
}

OutputTypes squares_of_blocks_shape(const ShapeContext& c) {
  std::int64_t blocks = 0;
  for (std::size_t i = 0; i < c.inputs(); ++i) {
    c.require_floating(i);
    c.require_rank(i, 1);
    blocks += kernels::square_parts(c.input(i)[0]);
  }
  return {{Shape{blocks}, DType::kF64}};
}

KernelRun squares_of_blocks_kernel(KernelPlan& plan) {
  using Sums = std::function<double*(const KernelPointers&, double*)>;
  std::vector<Sums> all;
  for (std::size_t i = 0; i < plan.inputs(); ++i)
    all.push_back(visit_floating(plan.input(i).dtype, [&]<class T>(T) -> Sums {
      return [i, n = plan.input(i).shape.elements()](const KernelPointers& p, double* sum) {
        for (std::int64_t first = 0; first < n; first += kernels::kSquarePart)
          *sum++ =
              squares_of_part(p.input<T>(i) + first, std::min(kernels::kSquarePart, n - first));
        return sum;
      };
    }));
  return [all](const KernelPointers& p) {
    double* sum = p.output<double>();
    for (const Sums& sums : all) sum = sums(p, sum);
  };
}

OutputTypes sums_of_blocks_shape(const ShapeContext& c) {
  const auto& options = c.options<SumsOfBlocksOptions>();
  c.require(c.dtype() == DType::kF64 && c.input(0).rank() == 1, "takes a vector f64, not ",
            c.type(0));
  c.require(options.first.size() == options.tensor.size() &&
                options.blocks.size() == options.tensor.size(),
            "takes as many tensors as first blocks and numbers of blocks");
  for (std::size_t i = 0; i < options.tensor.size(); ++i)
    c.require(options.tensor[i] >= 0 && options.tensor[i] < options.count &&
                  options.first[i] >= 0 && options.blocks[i] >= 0 &&
                  options.first[i] + options.blocks[i] <= c.input(0)[0],
              "has no blocks ", options.first[i], " to ", options.first[i] + options.blocks[i],
              " of tensor ", options.tensor[i]);
  return {{Shape{options.count}, DType::kF64}};
}

// Adds blocks as squares_in_tree() does.
KernelRun sums_of_blocks_kernel(KernelPlan& plan) {
  return [options = plan.options<SumsOfBlocksOptions>()](const KernelPointers& p) {
    for (int tensor = 0; tensor < options.count; ++tensor) {
      double lanes[kernels::kSquareLanes] = {};
      std::int64_t block = 0;
      for (std::size_t i = 0; i < options.tensor.size(); ++i)
        for (std::int64_t b = 0; options.tensor[i] == tensor && b < options.blocks[i]; ++b)
          lanes[block++ % kernels::kSquareLanes] += p.input<double>(0)[options.first[i] + b];
      p.output<double>()[tensor] = fold_squares(lanes);
    }
  };
}

template <class T>
double plain_squares(const T* x, std::int64_t n) {
  double sum = 0;
  for (std::int64_t i = 0; i < n; ++i) sum += static_cast<double>(x[i]) * static_cast<double>(x[i]);
  return sum;
}

template <bool plain>
KernelRun sums_of_squares_kernel(KernelPlan& plan) {
  using Sum = std::function<double(const KernelPointers&)>;
  std::vector<Sum> sums;
  for (std::size_t i = 0; i < plan.inputs(); ++i)
    sums.push_back(visit_floating(plan.input(i).dtype, [&]<class T>(T) -> Sum {
      return [i, n = plan.input(i).shape.elements()](const KernelPointers& p) {
        return plain ? plain_squares(p.input<T>(i), n) : squares_in_tree(p.input<T>(i), n);
      };
    }));
  return [sums, options = plan.options<SumsOfSquaresOptions>()](const KernelPointers& p) {
    std::fill_n(p.output<double>(), options.count, 0.0);
    for (std::size_t i = 0; i < sums.size(); ++i)
      p.output<double>()[options.positions[i]] = sums[i](p);
  };
}

OutputTypes global_norm_shape(const ShapeContext& c) {
  c.require(c.inputs() > 0, "needs at least one vector of sums");
  for (std::size_t i = 0; i < c.inputs(); ++i)
    c.require(c.dtype(i) == DType::kF64 && c.input(i).rank() == 1 && c.input(i) == c.input(0),
              "sums are vectors f64 of one size, not ", c.type(0), " and ", c.type(i));
  return {{Shape{}, DType::kF64}};
}

// At each position only one vector has a sum, so adding the vectors is exact.
KernelRun global_norm_kernel(KernelPlan& plan) {
  return [n = plan.input(0).shape.elements()](const KernelPointers& p) {
    double lanes[kernels::kSquareLanes] = {};
    for (std::int64_t i = 0; i < n; ++i) {
      double sum = 0;
      for (std::size_t k = 0; k < p.inputs(); ++k) sum += p.input<double>(k)[i];
      lanes[i % kernels::kSquareLanes] += sum;
    }
    *p.output<double>() = math::sqrt(fold_squares(lanes));
  };
}

OutputTypes clip_factor_shape(const ShapeContext& c) {
  const double most = c.options<ClipFactorOptions>().max_norm;
  c.require(most > 0 && std::isfinite(most), "the largest norm must be a finite number > 0, not ",
            most);
  c.require(c.inputs() == 1 || c.inputs() == 2, "takes a norm and perhaps a factor, not ",
            c.inputs(), " inputs");
  c.require(c.dtype() == DType::kF64 && c.input(0).rank() == 0, "the norm is ", c.type(0),
            ", but a scalar f64 is needed");
  if (c.inputs() == 2)
    c.require(c.dtype(1) == DType::kF32 && c.input(1).rank() == 0, "the factor is ", c.type(1),
              ", but a scalar f32 is needed");
  return {{Shape{}, DType::kF32}};
}

// Casts 16-bit tensors to f32, each on its own device.
std::vector<Output> without_halves(std::span<const Output> xs, const At& at) {
  std::vector<Output> result;
  for (const Output& x : xs) {
    const DeviceScope on(x.graph(), x.device(), at.site);
    result.push_back(is_half(x.dtype()) ? cast(x, DType::kF32, At(at.site)) : x);
  }
  return result;
}

KernelRun clip_factor_kernel(KernelPlan& plan) {
  return [most = plan.options<ClipFactorOptions>().max_norm](const KernelPointers& p) {
    *p.output<float>() =
        kernels::clip_factor(*p.input<double>(0), most, p.inputs() > 1 ? *p.input<float>(1) : 1.0f);
  };
}

}  // namespace

const Op kSumsOfSquares{.name = "SumsOfSquares",
                        .inputs = kVariadicInputs,
                        .shape = sums_of_squares_shape,
                        .no_gradient = kAboutGradients,
                        .cpu = sums_of_squares_kernel<false>,
                        .reference = sums_of_squares_kernel<true>};
const Op kSquaresOfBlocks{.name = "SquaresOfBlocks",
                          .inputs = kVariadicInputs,
                          .shape = squares_of_blocks_shape,
                          .no_gradient = kAboutGradients,
                          .reference = squares_of_blocks_kernel,
                          .cpu_only = kAboutProcesses};
const Op kSumsOfBlocks{.name = "SumsOfBlocks",
                       .inputs = 1,
                       .shape = sums_of_blocks_shape,
                       .no_gradient = kAboutGradients,
                       .reference = sums_of_blocks_kernel,
                       .cpu_only = kAboutProcesses};
const Op kGlobalNorm{.name = "GlobalNorm",
                     .inputs = kVariadicInputs,
                     .shape = global_norm_shape,
                     .no_gradient = kAboutGradients,
                     .reference = global_norm_kernel};
const Op kClipFactor{.name = "ClipFactor",
                     .inputs = kVariadicInputs,
                     .shape = clip_factor_shape,
                     .no_gradient = kAboutGradients,
                     .reference = clip_factor_kernel};

Output global_norm(std::span<const Output> xs, At at) {
  return norm_of_sums(sums_of_squares(xs, At(at.site)), at);
}

std::vector<Output> sums_of_squares(std::span<const Output> xs, At at) {
  require(!xs.empty(), "global_norm (", at.site, "): needs at least one tensor");
  Graph& graph = xs[0].graph();
  const std::vector<Output> squared = without_halves(xs, at);
  std::map<DeviceSpec, std::vector<int>> by_device;
  for (std::size_t i = 0; i < xs.size(); ++i)
    by_device[xs[i].device()].push_back(static_cast<int>(i));
  std::vector<Output> sums;
  for (const auto& [device, positions] : by_device) {
    const DeviceScope on(graph, device, at.site);
    std::vector<Output> own;
    for (const int i : positions) own.push_back(squared[static_cast<std::size_t>(i)]);
    const SumsOfSquaresOptions options{positions, static_cast<int>(xs.size())};
    sums.push_back(graph.add(kSumsOfSquares, own, At(at.site), NodeOptions(options)).output());
  }
  return sums;
}

Output norm_of_sums(std::span<const Output> sums, At at) {
  require(!sums.empty(), "norm_of_sums (", at.site, "): needs at least one vector of sums");
  return sums[0].graph().add(kGlobalNorm, sums, at).output();
}

Output squares_of_blocks(std::span<const Output> rows, At at) {
  require(!rows.empty(), "squares_of_blocks (", at.site, "): needs at least one row");
  return rows[0].graph().add(kSquaresOfBlocks, rows, at).output();
}

Output sums_of_blocks(Output blocks, SumsOfBlocksOptions options, At at) {
  return blocks.graph().add(kSumsOfBlocks, {blocks}, at, NodeOptions(std::move(options))).output();
}

Output norm_of_blocks(Output blocks, SumsOfBlocksOptions options, At at) {
  return norm_of_sums({{sums_of_blocks(blocks, std::move(options), At(at.site))}}, at);
}

Output clip_factor(Output norm, double max_norm, Output times, At at) {
  std::vector<Output> inputs{norm};
  if (times) inputs.push_back(times);
  return norm.graph()
      .add(kClipFactor, inputs, at, NodeOptions(ClipFactorOptions{max_norm}))
      .output();
}

std::vector<Output> clip_by_global_norm(std::span<const Output> xs, double max_norm, At at) {
  const std::vector<Output> wide = without_halves(xs, at);
  const Output factor = clip_factor(global_norm(wide, At(at.site)), max_norm, {}, At(at.site));
  std::vector<Output> clipped;
  for (std::size_t i = 0; i < xs.size(); ++i) {
    const DeviceScope on(xs[i].graph(), xs[i].device(), at.site);
    clipped.push_back(cast(wide[i] * cast(factor, wide[i].dtype()), xs[i].dtype()));
  }
  return clipped;
}

}  // namespace belfry
