// Where bits are promised, kernels of the GPU module give the same bits as the host's, even for
// tensors of several blocks, groups or launches. For gpu_ops_tests.
#include "belfry/tests/cuda/host_bits.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "belfry/framework/core_ops/add_n.h"
#include "belfry/framework/core_ops/add_pieces.h"
#include "belfry/framework/core_ops/between_processes.h"
#include "belfry/framework/core_ops/constant.h"
#include "belfry/framework/core_ops/covering_nodes.h"
#include "belfry/framework/core_ops/initializers.h"
#include "belfry/framework/core_ops/random.h"
#include "belfry/framework/gradients/gradients.h"
#include "belfry/ops/all_reduce.h"
#include "belfry/ops/arithmetic.h"
#include "belfry/ops/attention/rotary_embedding.h"
#include "belfry/ops/broadcast_to.h"
#include "belfry/ops/concat.h"
#include "belfry/ops/convolution/max_pool.h"
#include "belfry/ops/dropout.h"
#include "belfry/ops/exp.h"
#include "belfry/ops/gather.h"
#include "belfry/ops/gelu.h"
#include "belfry/ops/log.h"
#include "belfry/ops/normalization/batch_norm.h"
#include "belfry/ops/normalization/combine_moments.h"
#include "belfry/ops/normalization/layer_norm.h"
#include "belfry/ops/reduce.h"
#include "belfry/ops/sigmoid.h"
#include "belfry/ops/sigmoid_cross_entropy.h"
#include "belfry/ops/silu.h"
#include "belfry/ops/sin.h"
#include "belfry/ops/softmax.h"
#include "belfry/ops/sparse_softmax_cross_entropy.h"
#include "belfry/ops/split.h"
#include "belfry/ops/sqrt.h"
#include "belfry/ops/tanh.h"
#include "belfry/ops/transpose.h"
#include "belfry/ops/updates/adagrad_update.h"
#include "belfry/ops/updates/adam_update.h"
#include "belfry/ops/updates/ams_grad_update.h"
#include "belfry/ops/updates/global_norm.h"
#include "belfry/ops/updates/lars_update.h"
#include "belfry/ops/updates/lion_update.h"
#include "belfry/ops/updates/momentum_update.h"
#include "belfry/ops/updates/rms_prop_update.h"
#include "belfry/ops/updates/sgd_update.h"
#include "belfry/tests/support/interpreter.h"
#include "belfry/tests/support/op_test.h"
#include "belfry/tests/support/pointwise_ops.h"
#include "belfry/tests/support/update_check.h"

namespace belfry {
namespace host_bits {

// The result with the host's kernels.
Tensor on_host(const Builder& build, const std::vector<Tensor>& inputs) {
  const CpuKernel source = set_kernel_source(nullptr);
  const Tensor result = compute(build, inputs);
  set_kernel_source(source);
  return result;
}

std::vector<Tensor> as(DType dtype, std::vector<Tensor> tensors) {
  for (Tensor& tensor : tensors)
    if (is_floating(tensor.dtype())) tensor = to(tensor, dtype);
  return tensors;
}

void expect_host_bits(const Builder& build, const std::vector<Tensor>& inputs) {
  for (const DType dtype : {DType::kF32, DType::kF64}) {
    const std::vector<Tensor> in = as(dtype, inputs);
    EXPECT_TRUE(compute(build, in) == on_host(build, in)) << name_of(dtype);
  }
}

void expect_near_host(const Builder& build, const std::vector<Tensor>& inputs) {
  for (const DType dtype : {DType::kF32, DType::kF64}) {
    const std::vector<Tensor> in = as(dtype, inputs);
    EXPECT_LE(difference(compute(build, in), on_host(build, in)),
              dtype == DType::kF32 ? 2e-6 : 1e-14)
        << name_of(dtype);
  }
}

Builder gradient(const Builder& f, std::size_t along) {
  return [=](Inputs x) { return Built(gradients(f(x)[0], {x[0]}, {.initial = {x[along]}})); };
}

Tensor integers(Shape shape, int limit) {
  Tensor result(shape, DType::kI32);
  int next = 7;
  for (std::int32_t& x : result.mutable_data<std::int32_t>()) {
    next = next * 1103515245 % 65537;
    x = (next < 0 ? -next : next) % limit;
  }
  return result;
}

TEST(HostBits, OfPointwiseOps) {
  const std::vector<const Op*> ops = pointwise_ops();
  EXPECT_THAT(ops, testing::IsSupersetOf({&kExp, &kTanh, &kTanhGrad, &kSigmoid, &kSilu, &kSin}));
  for (const Op* op : ops) {
    SCOPED_TRACE(op->name);
    expect_host_bits(pointwise_builder(*op), pointwise_inputs(*op, 3001, 30));
  }
}

TEST(HostBits, OfFunctionsOfLargeNumbers) {
  for (const auto f : {log, sqrt}) {
    const Builder build = [f](Inputs x) { return f(x[0], At()); };
    expect_host_bits(build, {random_values({3001}, 0, 1000)});
  }
}

TEST(HostBits, OfGelus) {
  for (const GeluForm form : {GeluForm::kExact, GeluForm::kByTanh}) {
    const Builder build = [form](Inputs x) { return gelu(x[0], {.form = form}); };
    expect_host_bits(build, {random_values({3001}, -9, 9)});
    expect_host_bits(gradient(build, 1),
                     {random_values({3001}, -9, 9), random_values({3001}, -1, 1, 2)});
  }
}

TEST(HostBits, OfSigmoidCrossEntropy) {
  expect_host_bits([](Inputs x) { return sigmoid_cross_entropy(x[0], x[1]); },
                   {random_values({3001}, -30, 30), random_values({3001}, 0, 1, 2)});
}

TEST(HostBits, OfBroadcasts) {
  const Builder build = [](Inputs x) { return div(x[0], x[1]); };
  expect_host_bits(build, {random_values({3, 1, 5, 1, 7}), random_values({1, 4, 1, 6, 1})});
  expect_host_bits(build, {random_values({2, 3, 64}), random_values({3, 1})});
  expect_host_bits(build, {random_values({64}), random_values({5, 2, 64})});
}

TEST(HostBits, OfSumsOverManyElements) {
  const auto over = [](std::vector<int> axes) {
    return Builder([axes](Inputs x) { return reduce_sum(x[0], axes); });
  };
  for (const std::int64_t n : {1, 129, 1024, 1025, 16384, 16385, 70000, 300000})
    expect_host_bits(over({}), {random_values({n})});
  expect_host_bits(over({1}), {random_values({3, 40001})});
  for (const std::int64_t rows : {1, 8, 9, 255, 2048, 2049, 3000, 9000}) {
    expect_host_bits(over({0}), {random_values({rows, 37})});
    expect_host_bits(over({1}), {random_values({2, rows, 5})});
  }
  expect_host_bits(over({0, 2}), {random_values({50, 33, 40, 3})});
}

TEST(HostBits, OfMeans) {
  const Builder build = [](Inputs x) { return reduce_mean(x[0], {0}); };
  expect_host_bits(build, {random_values({2500, 33})});
  expect_host_bits(build, {random_values({50000})});
}

TEST(HostBits, OfSoftmaxAndLosses) {
  for (const std::int64_t n : {10, 1000, 2500}) {
    const Tensor logits = random_values({5, n}, -9, 9), labels = integers({5}, static_cast<int>(n));
    const Builder normal = [](Inputs x) { return softmax(x[0]); };
    const Builder loss = [](Inputs x) { return sparse_softmax_cross_entropy(x[0], x[1]); };
    expect_host_bits(normal, {logits});
    expect_host_bits(gradient(normal, 1), {logits, random_values({5, n}, -1, 1, 2)});
    const CrossEntropyOptions options{.smoothing = 0.1, .ignored = labels.data<std::int32_t>()[1]};
    const Builder smoothed = [&](Inputs x) {
      return sparse_softmax_cross_entropy(x[0], x[1], options);
    };
    for (const Builder& f : {loss, smoothed}) {
      expect_host_bits(f, {logits, labels});
      expect_host_bits(gradient(f, 2), {logits, labels, random_values({5}, -1, 1, 2)});
    }
  }
}

TEST(HostBits, OfRotatedPairs) {
  const Builder rotated = [](Inputs x) { return rotary_embedding(x[0], {.heads = 3}); };
  expect_host_bits(rotated, {random_values({2, 300, 42}, -3, 5)});
}

TEST(HostBits, OfNormalisedRows) {
  const Builder layer = [](Inputs x) { return layer_norm(x[0], x[1], x[2]); };
  const Builder rms = [](Inputs x) { return rms_norm(x[0], x[1]); };
  for (const Shape& shape : {Shape{5, 10}, Shape{3, 2, 2500}, Shape{3000, 37}}) {
    const std::vector<Tensor> inputs{
        random_values(shape, -3, 5), random_values({shape.back()}, 0.5, 2, 2),
        random_values({shape.back()}, -1, 1, 3), random_values(shape, -1, 1, 4)};
    for (const Builder& normal : {layer, rms}) {
      expect_host_bits(normal, inputs);
      for (const std::size_t which : {0, 1})
        expect_host_bits(
            [&](Inputs x) { return gradients(normal(x)[0], {x[which]}, {.initial = {x[3]}})[0]; },
            inputs);
    }
    expect_host_bits(
        [&](Inputs x) { return gradients(layer(x)[0], {x[2]}, {.initial = {x[3]}})[0]; }, inputs);
  }
}

TEST(HostBits, OfCanonicalSums) {
  for (const std::size_t towers : {1, 2, 3, 7, 8, 9, 16, 17, 20}) {
    std::vector<Tensor> inputs;
    for (std::size_t t = 0; t < towers; ++t)
      inputs.push_back(random_values({1030}, -2, 2, static_cast<unsigned>(t)));
    for (const bool mean : {false, true})
      expect_host_bits([mean](Inputs x) { return Built(all_reduce(x, {.mean = mean})); }, inputs);
    expect_host_bits([](Inputs x) { return add_n(x); }, inputs);
  }
}

// In some cases the towers of a process are several nodes of the tree.
TEST(HostBits, OfSumsOverProcesses) {
  for (const auto& [processes, towers] :
       {std::pair(2, 1), {3, 2}, {2, 3}, {5, 3}, {7, 6}, {128, 8}}) {
    constexpr std::int64_t kElements = 4100;
    const int rank = processes / 2;
    const Cuts cuts = even_cuts(kElements, processes);
    std::int64_t rows = 0, own = 0;
    for (int r = 0; r < processes; ++r)
      (r == rank ? own : rows) +=
          std::ssize(covering_nodes({r * towers, (r + 1) * towers}, processes * towers));
    std::vector<Tensor> values;
    for (std::int64_t i = 0; i < own; ++i)
      values.push_back(random_values({kElements}, -2, 2, static_cast<unsigned>(i + 1)));
    const std::int64_t length = piece_sizes(cuts)[static_cast<std::size_t>(rank)];
    values.push_back(random_values({rows, length}, -2, 2, static_cast<unsigned>(own + rows)));
    for (const bool mean : {false, true})
      expect_host_bits(
          [&, mean, n = processes, k = towers](Inputs x) {
            return add_pieces(std::span(x).first(x.size() - 1), x.back(),
                              {{rank, n}, k, mean, cuts});
          },
          values);
  }
}

// One launch has no room for so many tensors.
TEST(HostBits, OfCanonicalSumsOfManyTensors) {
  constexpr std::size_t kTensors = 50;
  std::vector<Tensor> inputs;
  for (std::size_t i = 0; i < 3 * kTensors; ++i)
    inputs.push_back(
        random_values({static_cast<std::int64_t>(1 + i / 3 * 7)}, -2, 2, static_cast<unsigned>(i)));
  for (std::size_t at = 0; at < 3 * kTensors; at += 20)
    expect_host_bits([at](Inputs x) { return all_reduce(x, {.participants = 3})[at]; }, inputs);
}

TEST(HostBits, OfRandomNumbers) {
  for (const DType dtype : {DType::kF32, DType::kF64}) {
    Graph graph;
    const Output samples = constant(graph, Tensor({70}, DType::kI32));
    const Output outputs[] = {
        random_uniform(graph, {1001}, -3, 5, dtype), random_normal(graph, {1001}, 2, dtype),
        graph.add(kRandomNormal, {samples}, {}, NodeOptions(RandomNormalOptions{{9}, 2, dtype}))
            .output(),
        graph
            .add(kRandomNormal, {samples}, {},
                 NodeOptions(RandomNormalOptions{{9}, 2, dtype, true}))
            .output(),
        init::truncated_normal(2)(graph, {1001}, dtype)};
    const std::vector<Tensor> numbers = evaluate(outputs, {}, {.step = 3});
    const CpuKernel source = set_kernel_source(nullptr);
    EXPECT_EQ(numbers, evaluate(outputs, {}, {.step = 3}));
    set_kernel_source(source);
  }
  expect_host_bits([](Inputs x) { return dropout(x[0], 0.3); }, {random_values({5000})});
}

TEST(HostBits, OfMaxima) {
  for (const std::int64_t channels : {3, 8})
    for (const PoolOptions& options :
         {PoolOptions{}, PoolOptions{.window = 3, .stride = 2},
          PoolOptions{.window = 3, .stride = 1, .padding = Padding::kValid},
          PoolOptions{.window = 1, .stride = 2},
          PoolOptions{.window = {3, 2}, .stride = {2, 1}, .padding = {1, 0, 1, 1}}}) {
      const Builder pool = [options](Inputs x) { return max_pool(x[0], options); };
      const Tensor x = random_values({3, 9, 7, channels});
      expect_host_bits(pool, {x});
      const Shape pooled = on_host(pool, {x}).shape();
      expect_host_bits(gradient(pool, 1), {x, random_values(pooled, -1, 1, 2)});
    }
}

TEST(HostBits, OfGathersOfManyRows) {
  const Builder rows = [](Inputs x) { return gather(x[0], x[1]); };
  const Tensor ids = integers({700}, 40);
  for (const std::int64_t width : {1, 3, 16}) {
    expect_host_bits(rows, {random_values({41, width}), ids});
    expect_host_bits(gradient(rows, 2),
                     {random_values({41, width}), ids, random_values({700, width}, -1, 1, 2)});
  }
}

// Ids have one, two or three digits of the radix sort; there are less than a tile of ids, and many.
TEST(HostBits, OfGradientsOfTablesOfEverySize) {
  const Builder rows = [](Inputs x) { return gather(x[0], x[1]); };
  for (const int limit : {1, 2, 63, 64, 4095, 4096, 50257})
    for (const std::int64_t count : {1, 15, 1023, 1024, 1025, 7000}) {
      SCOPED_TRACE(testing::Message() << count << " ids of " << limit);
      const Tensor ids = integers({count}, limit), dy = random_values({count, 3}, -1, 1, 2);
      for (const DType dtype : {DType::kI32, DType::kI64})
        expect_host_bits(gradient(rows, 2), {random_values({limit, 3}), to(ids, dtype), dy});
    }
}

// There are too many ids for a search through all of them for each.
TEST(HostBits, OfGradientsOfAMillionIds) {
  const Builder rows = [](Inputs x) { return gather(x[0], x[1]); };
  const std::int64_t count = 1 << 20;
  expect_host_bits(gradient(rows, 2), {random_values({5000, 1}), integers({count}, 5000),
                                       random_values({count, 1}, -1, 1, 2)});
}

TEST(HostBits, OfTransposedTensors) {
  const auto by = [](std::vector<int> order) {
    return Builder([order](Inputs x) { return transpose(x[0], order); });
  };
  expect_host_bits(by({}), {random_values({70, 65})});
  expect_host_bits(by({0, 2, 1}), {random_values({3, 33, 31})});
  expect_host_bits(by({0, 3, 1, 2}), {random_values({2, 5, 7, 40})});
  expect_host_bits(by({2, 0, 1}), {random_values({34, 5, 66})});
  expect_host_bits(by({1, 0, 2}), {random_values({4, 5, 8})});
  expect_host_bits(by({3, 0, 2, 1, 4}), {random_values({3, 4, 1, 6, 5})});
}

// One launch cannot copy so many parts.
TEST(HostBits, OfTensorsInManyParts) {
  std::vector<Tensor> parts;
  for (std::int64_t i = 0; i < 31; ++i)
    parts.push_back(random_values({3, i % 5, 4}, -2, 2, static_cast<unsigned>(i)));
  expect_host_bits([](Inputs x) { return concat(x, 1); }, parts);
  expect_host_bits([](Inputs x) { return concat(split(x[0], 30, 1), 0); },
                   {random_values({3, 60, 2})});
  for (const std::size_t part : {0, 1, 2, 3})
    for (const int axis : {0, 1, 2})
      expect_host_bits(
          [=](Inputs x) {
            return split(x[0], {5, 0, -1, 3}, axis)[part];
          },
          {random_values({9, 12, 10})});
}

TEST(HostBits, AreNearlyThoseOfMomentsOfManyRows) {
  for (const std::int64_t rows : {1, 9, 2048, 2049, 5000}) {
    const std::vector<Tensor> inputs{random_values({rows, 37}, 2, 5), random_values({37}, 1, 2, 2),
                                     random_values({37}, -1, 1, 3),
                                     random_values({rows, 37}, -1, 1, 4)};
    const Builder normal = [](Inputs x) { return batch_norm_train(x[0], x[1], x[2]).y; };
    const Builder variance = [](Inputs x) { return batch_norm_train(x[0], x[1], x[2]).variance; };
    expect_near_host(normal, inputs);
    expect_near_host(variance, inputs);
    if (rows > 9) expect_near_host(gradient(normal, 3), inputs);
    for (const std::size_t which : {1, 2})
      expect_near_host(
          [=](Inputs x) { return gradients(normal(x)[0], {x[which]}, {.initial = {x[3]}})[0]; },
          inputs);
  }
}

TEST(HostBits, OfNormsOfManyTensors) {
  for (const std::size_t tensors : {1, 3, 300}) {
    std::vector<Tensor> inputs;
    for (std::size_t i = 0; i < tensors; ++i)
      inputs.push_back(random_values({static_cast<std::int64_t>(i * 777 % 9001)}, -1, 1,
                                     static_cast<unsigned>(i)));
    inputs.push_back(random_values({1100003}));
    expect_host_bits([](Inputs x) { return global_norm(x); }, inputs);
    expect_host_bits([](Inputs x) { return clip_by_global_norm(x, 0.5).back(); }, inputs);
  }
}

TEST(HostBits, OfUpdates) {
  using Variables = std::span<const Variable>;
  std::vector<UpdateBuilder> updates;
  for (const double decay : {0.0, 0.1}) {
    updates.push_back([=](Variables v, Inputs x) -> Node& {
      return sgd_update(v[0], x[0], x[1], {.weight_decay = decay});
    });
    for (const MomentumForm form : {MomentumForm::kPlain, MomentumForm::kNesterov})
      updates.push_back([=](Variables v, Inputs x) -> Node& {
        return momentum_update(v[0], v[1], x[0], x[1], {.weight_decay = decay, .form = form});
      });
    updates.push_back([=](Variables v, Inputs x) -> Node& {
      return rms_prop_update(v[0], v[1], v[2], x[0], x[1],
                             {.momentum = 0.5, .weight_decay = decay});
    });
    for (const AdamEpsilon form : {AdamEpsilon::kToRoot, AdamEpsilon::kToCorrectedRoot})
      updates.push_back([=](Variables v, Inputs x) -> Node& {
        return adam_update(v[0], v[1], v[2], x[2], x[0], x[1],
                           {.weight_decay = decay, .form = form});
      });
    updates.push_back([=](Variables v, Inputs x) -> Node& {
      return ams_grad_update(v[0], v[1], v[2], v[3], x[2], x[0], x[1], {.weight_decay = decay});
    });
    updates.push_back([=](Variables v, Inputs x) -> Node& {
      return adagrad_update(v[0], v[1], x[0], x[1], {.weight_decay = decay});
    });
    updates.push_back([=](Variables v, Inputs x) -> Node& {
      return lion_update(v[0], v[1], x[0], x[1], {.weight_decay = decay});
    });
    updates.push_back([=](Variables v, Inputs x) -> Node& {
      const Output norm = constant(x[0].graph(), 2, DType::kF64);
      return lars_update(v[0], v[1], norm, norm, x[0], x[1], {.weight_decay = decay});
    });
  }
  for (const DType dtype : {DType::kF32, DType::kF64}) {
    const std::vector<Tensor> variables =
        as(dtype, {random_values({5001}), random_values({5001}, 0, 1, 2),
                   random_values({5001}, 0, 1, 3), random_values({5001}, 0, 1, 5)});
    std::vector<Tensor> inputs = as(dtype, {random_values({5001}, -1, 1, 4), Tensor(0.1f)});
    inputs.emplace_back(std::int64_t{3});
    for (std::size_t i = 0; i < updates.size(); ++i) {
      const std::vector<Tensor> found = update(updates[i], variables, inputs);
      const CpuKernel source = set_kernel_source(nullptr);
      EXPECT_TRUE(found == update(updates[i], variables, inputs)) << i << " " << name_of(dtype);
      set_kernel_source(source);
    }
  }
}

TEST(HostBits, OfMomentsOfManyParts) {
  for (const std::size_t parts : {1, 3, 17, 100}) {
    std::vector<Tensor> inputs;
    for (std::size_t i = 0; i < 2 * parts; ++i)
      inputs.push_back(random_values({300}, 0, 2, static_cast<unsigned>(i)));
    expect_host_bits(
        [](Inputs x) {
          std::vector<Output> means, variances;
          for (std::size_t i = 0; i < x.size(); i += 2) {
            means.push_back(x[i]);
            variances.push_back(x[i + 1]);
          }
          return combine_moments(means, variances).variance;
        },
        inputs);
  }
}

}  // namespace host_bits
}  // namespace belfry
