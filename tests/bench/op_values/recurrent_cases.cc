// The room `ops/recurrent`.
#include "belfry/belfry.h"
#include "belfry/tests/bench/op_values/op_cases.h"

namespace belfry::bench {
namespace {

using BuildRecurrence = RecurrentResult (*)(Output, const RecurrentWeights&,
                                            const RecurrentOptions&, At);

// Inputs: x, both weights, both biases, h, c of an LSTM, and lengths if there are any.
OpUse recurrence_use(Random& random, BuildRecurrence build, int gates, bool has_c) {
  const bool reverse = random.coin(), lengths = random.coin();
  const int batch = random.integer(1, 5), time = random.integer(1, 6);
  const int features = random.integer(1, 5), hidden = random.integer(1, 20);
  const int columns = gates * hidden;
  OpUse use{
      .build =
          [=](Inputs x) {
            const RecurrentResult found = build(
                x[0], {.input = x[1], .hidden = x[2], .input_bias = x[3], .hidden_bias = x[4]},
                {.h = x[5],
                 .c = has_c ? x[6] : Output(),
                 .lengths = lengths ? x.back() : Output(),
                 .reverse = reverse},
                {});
            std::vector<Output> outputs{found.y, found.h};
            if (has_c) outputs.push_back(found.c);
            return Built(outputs);
          },
      .inputs = {random.values({batch, time, features}), random.values({features, columns}, -1, 1),
                 random.values({hidden, columns}, -0.5, 0.5), random.values({columns}, -1, 1),
                 random.values({columns}, -1, 1), random.values({batch, hidden}, -1, 1)}};
  if (has_c) use.inputs.push_back(random.values({batch, hidden}, -1, 1));
  if (lengths) use.inputs.push_back(random.integers({batch}, 1, time));
  use.options = JsonValue::object().set("reverse", reverse).set("lengths", lengths);
  return use;
}

}  // namespace

std::vector<OpCase> recurrent_cases() {
  return {{"lstm", [](Random& random) { return recurrence_use(random, lstm, 4, true); }},
          {"gru", [](Random& random) { return recurrence_use(random, gru, 3, false); }}};
}

}  // namespace belfry::bench
