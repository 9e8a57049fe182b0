// Convolution, pooling and normalisation.
#include <algorithm>

#include "belfry/belfry.h"
#include "belfry/ops/normalization/batch_norm.h"
#include "belfry/ops/normalization/group_norm.h"
#include "belfry/ops/normalization/layer_norm.h"
#include "belfry/tests/bench/op_values/op_cases.h"

namespace belfry::bench {
namespace {

JsonValue numbers(std::initializer_list<int> values) {
  JsonValue array = JsonValue::array();
  for (const int value : values) array.push(value);
  return array;
}

JsonValue both(const PerAxis& value) { return numbers({value.vertical, value.horizontal}); }

PerAxis sizes(Random& random, int low, int high) {
  return {random.integer(low, high), random.integer(low, high)};
}

// Padding of each side, and the same as option "padding": [top, bottom, left, right].
struct Sides {
  Sides(Random& random, const PerAxis& most)
      : top(random.integer(0, most.vertical)),
        bottom(random.integer(0, most.vertical)),
        left(random.integer(0, most.horizontal)),
        right(random.integer(0, most.horizontal)) {}
  Padding padding() const { return {top, bottom, left, right}; }
  JsonValue json() const { return numbers({top, bottom, left, right}); }

  int top, bottom, left, right;
};

struct Convolving {
  explicit Convolving(Random& random)
      : groups(random.integer(1, 3)),
        taps(sizes(random, 1, 3)),
        sides(random, {2, 2}),
        options{.stride = sizes(random, 1, 3),
                .padding = sides.padding(),
                .dilation = sizes(random, 1, 2),
                .groups = groups} {}
  JsonValue json() const {
    return JsonValue::object()
        .set("stride", both(options.stride))
        .set("padding", sides.json())
        .set("dilation", both(options.dilation))
        .set("groups", groups);
  }

  int groups;
  PerAxis taps;
  Sides sides;
  Conv2dOptions options;
};

OpUse conv2d_use(Random& random) {
  const Convolving c(random);
  const int in = random.integer(1, 3), out = random.integer(1, 3) * c.groups;
  const Shape image{random.integer(1, 3), random.integer(5, 9), random.integer(5, 9),
                    in * c.groups};
  return {[options = c.options](Inputs x) { return conv2d(x[0], x[1], options); },
          {random.values(image), random.values({out, c.taps.vertical, c.taps.horizontal, in})},
          c.json()};
}

// Padding of PyTorch is equal on both sides; what it lacks after is its output_padding.
OpUse conv2d_transpose_use(Random& random) {
  const int groups = random.integer(1, 3), stride = random.integer(1, 3), taps = 4;
  const int padding = random.integer(0, 2);
  const int less = random.integer(0, std::min(padding, stride - 1));
  const int dilation = random.integer(1, 2);
  const int in = random.integer(1, 2) * groups, out = random.integer(1, 3);
  const Conv2dOptions options{.stride = stride,
                              .padding = {padding, padding - less, padding, padding - less},
                              .dilation = dilation,
                              .groups = groups};
  return {[options](Inputs x) { return conv2d_transpose(x[0], x[1], options); },
          {random.values({random.integer(1, 3), random.integer(2, 5), random.integer(2, 5), in}),
           random.values({in, taps, taps, out})},
          JsonValue::object()
              .set("stride", stride)
              .set("padding", padding)
              .set("output_padding", less)
              .set("dilation", dilation)
              .set("groups", groups)};
}

OpUse conv1d_use(Random& random) {
  const int stride = random.integer(1, 3), before = random.integer(0, 3);
  const int after = random.integer(0, 3), dilation = random.integer(1, 2);
  const int groups = random.integer(1, 2), in = random.integer(1, 3);
  const Conv1dOptions options{
      .stride = stride, .padding = {before, after}, .dilation = dilation, .groups = groups};
  return {[options](Inputs x) { return conv1d(x[0], x[1], options); },
          {random.values({random.integer(1, 3), random.integer(5, 9), in * groups}),
           random.values({2 * groups, random.integer(1, 3), in})},
          JsonValue::object()
              .set("stride", stride)
              .set("padding", numbers({before, after}))
              .set("dilation", dilation)
              .set("groups", groups)};
}

struct Pooling {
  explicit Pooling(Random& random)
      : window(sizes(random, 2, 3)),
        sides(random, {window.vertical / 2, window.horizontal / 2}),
        options{.window = window, .stride = sizes(random, 1, 3), .padding = sides.padding()},
        x(random.values({random.integer(1, 3), random.integer(4, 7), random.integer(4, 7),
                         random.integer(1, 3)})) {}
  JsonValue json() const {
    return JsonValue::object()
        .set("window", both(window))
        .set("stride", both(options.stride))
        .set("padding", sides.json());
  }

  PerAxis window;
  Sides sides;
  PoolOptions options;
  Tensor x;
};

OpUse max_pool_use(Random& random) {
  const Pooling pooling(random);
  return {[options = pooling.options](Inputs x) { return max_pool(x[0], options); },
          {pooling.x},
          pooling.json()};
}

OpUse avg_pool_use(Random& random) {
  Pooling pooling(random);
  pooling.options.count_include_pad = random.coin();
  return {[options = pooling.options](Inputs x) { return avg_pool(x[0], options); },
          {pooling.x},
          pooling.json().set("count_include_pad", pooling.options.count_include_pad)};
}

OpUse group_norm_use(Random& random) {
  const int groups = random.integer(1, 3), channels = groups * random.integer(1, 3);
  const Shape shape{random.integer(1, 3), random.integer(2, 4), random.integer(1, 4), channels};
  return {[groups](Inputs x) { return group_norm(x[0], x[1], x[2], {.groups = groups}); },
          {random.values(shape), random.values({channels}, 0.5, 2), random.values({channels})},
          JsonValue::object().set("groups", groups)};
}

OpUse instance_norm_use(Random& random) {
  const Shape shape{random.integer(1, 3), random.integer(2, 4), random.integer(2, 4),
                    random.integer(1, 5)};
  return {[](Inputs x) { return instance_norm(x[0]); }, {random.values(shape)}};
}

// Normalises rows, or channels over all rows.
OpUse norm_use(Random& random, const std::function<Output(Inputs)>& norm, bool beta) {
  const Shape shape{random.integer(3, 5), random.integer(1, 4), random.integer(3, 9)};
  const Shape columns{shape.back()};
  OpUse use{norm, {random.values(shape), random.values(columns, 0.5, 2)}};
  if (beta) use.inputs.push_back(random.values(columns));
  return use;
}

OpUse layer_norm_use(Random& random) {
  return norm_use(
      random, [](Inputs x) { return layer_norm(x[0], x[1], x[2]); }, true);
}

OpUse rms_norm_use(Random& random) {
  return norm_use(
      random, [](Inputs x) { return rms_norm(x[0], x[1]); }, false);
}

OpUse batch_norm_use(Random& random) {
  return norm_use(
      random, [](Inputs x) { return batch_norm_train(x[0], x[1], x[2]).y; }, true);
}

OpUse batch_norm_inference_use(Random& random) {
  OpUse use = norm_use(
      random, [](Inputs x) { return batch_norm_inference(x[0], x[1], x[2], x[3], x[4]); }, true);
  const Shape columns = use.inputs[1].shape();
  use.inputs.insert(use.inputs.end(), {random.values(columns), random.values(columns, 0.5, 2)});
  return use;
}

}  // namespace

std::vector<OpCase> window_cases() {
  return {{"conv2d", conv2d_use},
          {"conv2d_transpose", conv2d_transpose_use},
          {"conv1d", conv1d_use},
          {"max_pool", max_pool_use},
          {"avg_pool", avg_pool_use},
          {"group_norm", group_norm_use},
          {"instance_norm", instance_norm_use},
          {"layer_norm", layer_norm_use},
          {"rms_norm", rms_norm_use},
          {"batch_norm", batch_norm_use},
          {"batch_norm_inference", batch_norm_inference_use}};
}

}  // namespace belfry::bench
