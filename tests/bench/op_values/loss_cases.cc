// The losses of ops/losses.
#include "belfry/belfry.h"
#include "belfry/tests/bench/op_values/op_cases.h"

namespace belfry::bench {
namespace {

LossReduction reduction_of(Random& random, JsonValue& options) {
  const LossReduction reduction = random.coin() ? LossReduction::kMean : LossReduction::kNone;
  options.set("reduction", reduction == LossReduction::kMean ? "mean" : "none");
  return reduction;
}

// A loss of predictions, in [-2, 2), and targets of one shape of rank 2 or more.
// build(inputs, reduction, random, options) returns it.
template <class Build>
OpCase compared(std::string name, double low, double high, Build build) {
  return {std::move(name), [=](Random& random) -> OpUse {
            JsonValue options = JsonValue::object();
            const LossReduction reduction = reduction_of(random, options);
            const Shape shape = random.shape(2);
            const Tensor predictions = random.values(shape);
            const Tensor targets = random.values(shape, low, high);
            const Builder loss = build(reduction, random, options);
            return {loss, {predictions, targets}, options};
          }};
}

// One without options but the reduction.
template <class Loss>
OpCase plain(std::string name, double low, double high, Loss loss) {
  return compared(std::move(name), low, high,
                  [loss](LossReduction reduction, Random&, JsonValue&) -> Builder {
                    return [=](Inputs x) { return loss(x[0], x[1], reduction); };
                  });
}

OpCase huber() {
  return compared("huber_loss", -2, 2,
                  [](LossReduction reduction, Random& random, JsonValue& options) -> Builder {
                    const double delta = random.integer(1, 8) / 4.0;
                    options.set("delta", delta);
                    return [=](Inputs x) {
                      return huber_loss(x[0], x[1], {.delta = delta, .reduction = reduction});
                    };
                  });
}

OpCase smooth_l1() {
  return compared("smooth_l1_loss", -2, 2,
                  [](LossReduction reduction, Random& random, JsonValue& options) -> Builder {
                    const double beta = random.integer(0, 8) / 4.0;
                    options.set("beta", beta);
                    return [=](Inputs x) {
                      return smooth_l1_loss(x[0], x[1], {.beta = beta, .reduction = reduction});
                    };
                  });
}

OpCase binary_cross_entropy() {
  return compared("binary_cross_entropy_with_logits", 0, 1,
                  [](LossReduction reduction, Random& random, JsonValue& options) -> Builder {
                    const double weight = random.integer(1, 8) / 2.0;
                    options.set("pos_weight", weight);
                    return [=](Inputs x) {
                      return binary_cross_entropy_with_logits(
                          x[0], x[1], {.pos_weight = {weight}, .reduction = reduction});
                    };
                  });
}

OpCase focal() {
  return compared("sigmoid_focal_loss", 0, 1,
                  [](LossReduction reduction, Random& random, JsonValue& options) -> Builder {
                    const double gamma = random.integer(0, 6) / 2.0;
                    const double alpha = random.integer(-1, 4) / 4.0;
                    options.set("gamma", gamma).set("alpha", alpha);
                    return [=](Inputs x) {
                      return sigmoid_focal_loss(
                          x[0], x[1], {.alpha = alpha, .gamma = gamma, .reduction = reduction});
                    };
                  });
}

OpCase kl() {
  return compared("kl_div", 0.1, 1,
                  [](LossReduction reduction, Random& random, JsonValue& options) -> Builder {
                    const bool log_target = random.coin();
                    options.set("log_target", log_target);
                    return [=](Inputs x) {
                      return kl_div(x[0], x[1], {.log_target = log_target, .reduction = reduction});
                    };
                  });
}

OpUse dice_use(Random& random) {
  const Shape shape = random.shape(3);
  const bool per_channel = random.coin();
  return {[=](Inputs x) { return dice_loss(x[0], x[1], {.per_channel = per_channel}); },
          {random.values(shape, 0, 1), random.values(shape, 0, 1)},
          JsonValue::object().set("per_channel", per_channel)};
}

// Vectors of one element have the derivative 0, of which only rounding would be compared.
OpUse cosine_use(Random& random) {
  const Shape others = random.shape(1, 3);
  std::vector<std::int64_t> dims = others.dims();
  const int axis = random.integer(0, static_cast<int>(dims.size()));
  dims.insert(dims.begin() + axis, random.integer(2, 6));
  return {[=](Inputs x) { return cosine_similarity(x[0], x[1], {.axis = axis}); },
          {random.values(Shape(dims)), random.values(Shape(dims))},
          JsonValue::object().set("axis", axis)};
}

// Class 0 counts once, class 1 as 1.5, class 2 as 2, and so on.
OpUse weighted_cross_entropy_use(Random& random) {
  const int n = random.integer(1, 6), classes = random.integer(2, 7);
  const double smoothing = random.integer(0, 2) / 4.0;
  std::vector<double> weights;
  for (int i = 0; i < classes; ++i) weights.push_back(1 + i / 2.0);
  return {[=](Inputs x) {
            return weighted_cross_entropy(x[0], x[1],
                                          {.class_weights = weights, .smoothing = smoothing});
          },
          {random.values({n, classes}),
           random.integers({n}, 0, classes - 1, random.coin() ? DType::kI64 : DType::kI32)},
          JsonValue::object().set("smoothing", smoothing)};
}

OpUse ctc_use(Random& random) {
  constexpr int kMostLabels = 3;
  const int n = random.integer(1, 4), time = random.integer(6, 12), classes = random.integer(2, 6);
  const int blank = random.integer(0, 1) * (classes - 1);
  const DType dtype = random.coin() ? DType::kI64 : DType::kI32;
  return {[=](Inputs x) {
            return ctc_loss(x[0], x[1], x[2], x[3],
                            {.blank = blank, .reduction = LossReduction::kNone});
          },
          {random.values({n, time, classes}),
           random.integers({n, kMostLabels}, blank == 0 ? 1 : 0,
                           blank == 0 ? classes - 1 : classes - 2, dtype),
           random.integers({n}, 6, time, dtype), random.integers({n}, 0, kMostLabels, dtype)},
          JsonValue::object().set("blank", blank)};
}

}  // namespace

std::vector<OpCase> loss_cases() {
  using R = LossReduction;
  return {
      plain("mse_loss", -2, 2,
            [](Output p, Output t, R r) { return mse_loss(p, t, {.reduction = r}); }),
      plain("l1_loss", -2, 2,
            [](Output p, Output t, R r) { return l1_loss(p, t, {.reduction = r}); }),
      huber(),
      smooth_l1(),
      plain("hinge_loss", -1, 1,
            [](Output p, Output t, R r) { return hinge_loss(p, t, {.reduction = r}); }),
      plain("softmax_cross_entropy", 0, 1,
            [](Output p, Output t, R r) { return softmax_cross_entropy(p, t, {.reduction = r}); }),
      binary_cross_entropy(),
      focal(),
      kl(),
      {"dice_loss", dice_use},
      {"cosine_similarity", cosine_use},
      {"weighted_cross_entropy", weighted_cross_entropy_use},
      {"ctc_loss", ctc_use, 1}};
}

}  // namespace belfry::bench
