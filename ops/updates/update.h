// Shared by optimizer updates.
#pragma once
#include <algorithm>
#include <cmath>
#include <initializer_list>
#include <vector>

#include "belfry/framework/base/text.h"
#include "belfry/framework/graph/node.h"
#include "belfry/framework/graph/op.h"

namespace belfry::kernels {

inline constexpr const char* kUpdateHasNoGradient = "it changes a variable";

// Requires inputs 0, .., slots and `gradient` to have one shape and type, f32 or f64, and `rate` to
// be a scalar of that type. Only a factor (ScaledGradient) may follow the rate. `part_from`: as in
// SgdUpdateOptions. Returns the types of the variables.
inline OutputTypes update_types(const ShapeContext& c, std::size_t variables, std::size_t gradient,
                                std::size_t rate, std::int64_t part_from) {
  c.require(c.inputs() == rate + 1 || c.inputs() == rate + 2, "takes ", rate + 1,
            " inputs, and perhaps a factor, not ", c.inputs());
  c.require_floating(0);
  c.require(!is_half(c.dtype(0)), "the variable is ", c.type(0),
            ", but those that are updated are f32 or f64; keep it in f32 and cast what is read");
  const auto fits = [&](std::size_t i) {
    if (part_from == 0) return c.input(i).compatible(c.input(0));
    return c.input(i).rank() == 1 && c.input(i) == c.input(gradient) &&
           part_from - 1 + c.input(i)[0] <= c.input(0).elements();
  };
  const auto like_variable = [&](std::size_t i, const char* what) {
    c.require(c.dtype(i) == c.dtype(0) && fits(i), "the variable is ", c.type(0),
              part_from == 0 ? std::string() : cat(", updated from element ", part_from - 1, " on"),
              ", but its ", what, " is ", c.type(i));
  };
  for (std::size_t i = 1; i < variables; ++i) like_variable(i, "slot");
  like_variable(gradient, "gradient");
  c.require(c.dtype(rate) == c.dtype(0) && c.input(rate).rank() == 0, "the learning rate is ",
            c.type(rate), ", but a scalar ", name_of(c.dtype(0)), " is needed");
  if (c.inputs() == rate + 2)
    c.require(c.dtype(rate + 1) == DType::kF32 && c.input(rate + 1).rank() == 0, "the factor is ",
              c.type(rate + 1), ", but a scalar f32 is needed");
  OutputTypes types;
  for (std::size_t i = 0; i < variables; ++i) types.emplace_back(c.type(i));
  return types;
}

// `other`: the decay in the form that is not the op's usual one.
inline void require_decay(const ShapeContext& c, double decay, double other = 0) {
  for (const double each : {decay, other})
    c.require(each >= 0 && std::isfinite(each),
              "the weight decay must be a finite number >= 0, not ", each);
}

inline void require_beta(const ShapeContext& c, double beta) {
  c.require(beta >= 0 && beta < 1, "the betas must be in [0, 1), not ", beta);
}

inline void require_epsilon(const ShapeContext& c, double epsilon) {
  c.require(epsilon >= 0, "epsilon must not be negative, but is ", epsilon);
}

// The inputs of an update: those up to the rate, and the factor, if any.
inline std::vector<Output> update_inputs(std::initializer_list<Output> inputs, Output factor) {
  std::vector<Output> result(inputs);
  if (factor) result.push_back(factor);
  return result;
}

// The elements of the gradient in a launch. Its element 0 is element `first` of the variable.
struct UpdateRange {
  std::int64_t begin, end, first;

  // `part_from`: as in SgdUpdateOptions; `gradient`: its number of elements.
  UpdateRange(const KernelPointers& p, std::int64_t part_from, std::int64_t gradient)
      : begin(p.begin()), end(p.end()), first(std::max<std::int64_t>(part_from - 1, 0)) {
    if (part_from == 0) return;
    begin = std::max(begin - first, std::int64_t{0});
    end = std::min(end - first, gradient);
  }
};

// The factor: input i, or 1 if there is none; 0 means write nothing.
template <class T>
T factor_of(const KernelPointers& p, std::size_t i) {
  return i < p.inputs() ? static_cast<T>(*p.input<float>(i)) : T(1);
}

}  // namespace belfry::kernels
