// The ops of the room `indexing`, gathers and extremes.
#include <algorithm>
#include <numeric>

#include "belfry/belfry.h"
#include "belfry/tests/bench/op_values/op_cases.h"

namespace belfry::bench {
namespace {

// A shape with one axis of it.
struct Along {
  explicit Along(Random& random)
      : shape(random.shape()),
        axis(random.integer(0, static_cast<int>(shape.rank()) - 1)),
        size(static_cast<int>(shape[static_cast<std::size_t>(axis)])) {}
  JsonValue options() const { return JsonValue::object().set("axis", axis); }

  Shape shape;
  int axis, size;
};

// An op along an axis, or along two, which need not be neighbours.
OpCase extreme(std::string name, Output (*op)(Output, std::vector<int>, At)) {
  return {std::move(name), [op](Random& random) -> OpUse {
            const Shape shape = random.shape();
            const int last = static_cast<int>(shape.rank()) - 1, axis = random.integer(0, last);
            std::vector<int> axes{axis};
            if (axis < last && random.coin()) axes.push_back(random.integer(axis + 1, last));
            JsonValue list = JsonValue::array();
            for (const int a : axes) list.push(a);
            // Integers, so that some are equal.
            Tensor x = random.values(shape);
            if (random.coin())
              for (double& value : x.mutable_data<double>()) value = random.integer(-2, 2);
            return {[=](Inputs in) { return op(in[0], axes, At()); },
                    {x},
                    JsonValue::object().set("axes", list)};
          }};
}

OpCase place(std::string name, Output (*op)(Output, int, At)) {
  return {std::move(name),
          [op](Random& random) -> OpUse {
            const Along along(random);
            return {[=](Inputs x) { return op(x[0], along.axis, At()); },
                    {random.values(along.shape)},
                    along.options()};
          },
          0};
}

OpUse take_use(Random& random) {
  const Along along(random);
  const Tensor ids = random.integers(random.shape(0, 2), 0, along.size - 1);
  return {[=](Inputs x) { return take(x[0], x[1], along.axis); },
          {random.values(along.shape), ids},
          along.options()};
}

OpUse take_along_axis_use(Random& random) {
  const Along along(random);
  Shape of_ids = along.shape;
  of_ids[static_cast<std::size_t>(along.axis)] = random.integer(1, 7);
  return {[=](Inputs x) { return take_along_axis(x[0], x[1], along.axis); },
          {random.values(along.shape), random.integers(of_ids, 0, along.size - 1, DType::kI64)},
          along.options()};
}

OpUse gather_nd_use(Random& random) {
  const Shape shape{random.integer(1, 4), random.integer(1, 4), random.integer(1, 4)};
  const int depth = random.integer(1, 3),
            least = static_cast<int>(std::min({shape[0], shape[1], shape[2]}));
  return {[](Inputs x) { return gather_nd(x[0], x[1]); },
          {random.values(shape), random.integers({random.integer(1, 6), depth}, 0, least - 1)}};
}

OpUse scatter_add_use(Random& random) {
  const Along along(random);
  Shape of_updates = along.shape;
  const int count = random.integer(1, 8);
  of_updates[static_cast<std::size_t>(along.axis)] = count;
  return {[=](Inputs x) { return scatter_add(x[0], x[1], x[2], {.axis = along.axis}); },
          {random.values(along.shape), random.integers({count}, 0, along.size - 1),
           random.values(of_updates)},
          along.options()};
}

// If `each_has_rows`, no segment is empty: a difference of infinities is no number.
OpCase segments(std::string name, Output (*op)(Output, Output, std::int64_t, At),
                bool each_has_rows = false) {
  return {std::move(name), [op, each_has_rows](Random& random) -> OpUse {
            const int rows = random.integer(5, 12), count = random.integer(1, 5);
            Tensor ids = random.integers({rows}, 0, count - 1);
            if (each_has_rows)
              std::iota(ids.mutable_data<std::int32_t>().begin(),
                        ids.mutable_data<std::int32_t>().begin() + count, 0);
            return {[=](Inputs x) { return op(x[0], x[1], count, At()); },
                    {random.values({rows, random.integer(1, 5)}), ids},
                    JsonValue::object().set("segments", count)};
          }};
}

OpUse top_k_use(Random& random) {
  const Shape shape = random.shape();
  const int k = random.integer(1, static_cast<int>(shape.back()));
  const bool smallest = random.coin();
  return {[=](Inputs x) {
            const TopK top = top_k(x[0], k, {.smallest = smallest});
            return Built(std::vector{top.values, top.indices});
          },
          {random.values(shape)},
          JsonValue::object().set("k", k).set("smallest", smallest)};
}

OpUse cumsum_use(Random& random) {
  const Along along(random);
  const bool exclusive = random.coin(), reverse = random.coin();
  return {[=](Inputs x) {
            return cumsum(x[0], {.axis = along.axis, .exclusive = exclusive, .reverse = reverse});
          },
          {random.values(along.shape)},
          along.options().set("exclusive", exclusive).set("reverse", reverse)};
}

OpUse one_hot_use(Random& random) {
  const int depth = random.integer(1, 6);
  return {[=](Inputs x) { return one_hot(x[0], depth); },
          {random.integers(random.shape(0, 2), 0, depth - 1, DType::kI64)},
          JsonValue::object().set("depth", depth)};
}

}  // namespace

std::vector<OpCase> indexing_cases() {
  return {extreme("reduce_max", reduce_max),
          extreme("reduce_min", reduce_min),
          extreme("reduce_prod", reduce_prod),
          place("argmax", argmax),
          place("argmin", argmin),
          {"take", take_use},
          {"take_along_axis", take_along_axis_use},
          {"gather_nd", gather_nd_use},
          {"scatter_add", scatter_add_use},
          segments("segment_sum", segment_sum),
          segments("segment_mean", segment_mean),
          segments("segment_max", segment_max, true),
          {"top_k", top_k_use},
          {"cumsum", cumsum_use},
          {"one_hot", one_hot_use, 0}};
}

}  // namespace belfry::bench
