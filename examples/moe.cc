// A transformer block with a mixture of experts (Shazeer et al. 2017) on MNIST, routed as in GShard
// (Lepikhin et al. 2020): each patch of a digit is worked on by the two experts that its gate
// prefers. Try: moe --devices=cpu:4 --data_dir=DIR
#include "belfry/belfry.h"
using namespace belfry;

// An expert takes at most kCapacity tokens of an image: 1.25 times its share of them.
constexpr int kPatch = 7, kTokens = 16, kWidth = 64, kHidden = 128;
constexpr int kExperts = 8, kChosen = 2, kCapacity = kTokens * kChosen * 5 / (kExperts * 4);

// The weights of all experts, as one product for each.
Output experts_dense(Tower& tower, std::string_view name, Output x, int in, int units) {
  const VariableScope scope(tower.graph(), name);
  const Variable w = variable(tower.graph(), "weights", {kExperts, in, units},
                              {.initializer = init::he_normal(WeightAxes::kMatrices)});
  const Variable b =
      variable(tower.graph(), "b", {kExperts, 1, units}, {.initializer = init::zeros()});
  return matmul(x, w) + b;
}

struct Mixture {
  Output y;        // like x
  Output balance;  // 1 if all experts have as much to do, up to kExperts if one does it all
  Output dropped;  // the share of choices for which an expert had no room
};

// x [N,kTokens,kWidth]. The first choices of an image's tokens come before all second ones.
Mixture mixture(Tower& tower, std::string_view name, Output x) {
  const VariableScope scope(tower.graph(), name);
  const Output chances =
      softmax(dense(tower, "gate", x, {.units = kExperts, .bias = false}));  // [N,kTokens,kExperts]
  const TopK best = top_k(chances, kChosen);
  const Output gates = best.values / reduce_sum(best.values, {-1}, ReducedAxes::kKept);

  // The turn of each choice in the queue of its expert, and its place if the queues of all experts
  // are put end to end. Choices for which there is no room have the place after all queues.
  const Output expert = flatten(swapaxes(best.indices, 1, 2));  // [N,kChosen kTokens]
  const Output mask = one_hot(expert, kExperts, DType::kI64);   // [N,kChosen kTokens,kExperts]
  const Output turn = reduce_sum(cumsum(mask, {.axis = 1, .exclusive = true}) * mask, {2});
  const Output room = less(turn, kCapacity);
  const Output place = where(room, expert * kCapacity + turn, kExperts * kCapacity);

  // To the experts, and back.
  constexpr GatherOptions kOfImage{.axis = 1, .batch_dims = 1};
  const Output places = zeros_like(pad(x, {{}, {0, kExperts * kCapacity + 1 - kTokens}, {}}));
  Output queues = scatter_add(places, place, tile(x, {1, kChosen, 1}), kOfImage);
  queues = slice(queues, {0, 0, 0}, {-1, kExperts * kCapacity, -1});
  queues = reshape(queues, {kUnknownSize, kExperts, kCapacity, kWidth});
  queues = relu(experts_dense(tower, "fc0", queues, kWidth, kHidden));
  queues = experts_dense(tower, "fc1", queues, kHidden, kWidth);
  queues = reshape(queues, {kUnknownSize, kExperts * kCapacity, kWidth});
  const Output done = gather(pad(queues, {{}, {0, 1}, {}}), place, kOfImage);
  const Output each = reshape(done, {kUnknownSize, kChosen, kTokens, kWidth});
  const Output y = reduce_sum(each * expand_dims(swapaxes(gates, 1, 2), -1), {1});

  // The share of tokens whose first choice an expert is, times the gate's mean, in each image.
  const Output first = cast(slice(mask, {0, 0, 0}, {-1, kTokens, -1}), DType::kF32);
  const Output balance = reduce_sum(reduce_mean(first, {1}) * reduce_mean(chances, {1}), {1});
  return {.y = y,
          .balance = kExperts * reduce_mean(balance),
          .dropped = reduce_mean(cast(logical_not(room), DType::kF32))};
}

Output moe(Tower& tower, Output image, Output label) {
  const Output patches =
      reshape(space_to_depth(image, kPatch), {kUnknownSize, kTokens, kPatch * kPatch});
  Output x = dense(tower, "patches", patches, {.units = kWidth});
  x = x +
      variable(tower.graph(), "positions", {kTokens, kWidth}, {.initializer = init::normal(0.02)});
  x = x + multi_head_attention(tower, "attention", layer_norm(tower, "norm0", x), {.heads = 4});
  const Mixture experts = mixture(tower, "experts", layer_norm(tower, "norm1", x));
  x = reduce_mean(layer_norm(tower, "norm2", x + experts.y), {1});
  const Output logits = dense(tower, "head", x, {.units = 10});
  tower.output("logits", logits);
  tower.metric("accuracy", accuracy(logits, label));
  tower.metric("balance", experts.balance);
  tower.metric("dropped", experts.dropped);
  return cross_entropy(logits, label) + 0.01 * experts.balance;
}

int main(int argc, char** argv) {
  return train(argc, argv,
               {.model = moe,
                .data = data::mnist,
                .optimizer = adam(1e-3),
                .global_batch_size = 128,
                .epochs = 5});
}
