// What optimizer updates share.
#pragma once
#include "belfry/framework/op.h"

namespace belfry::kernels {

inline constexpr const char* kUpdateHasNoGradient = "it changes a variable";

// Requires inputs 0, .., slots and `gradient` to be of one shape and floating type, and `rate` to
// be a scalar of that type. Returns the types of the variables.
inline OutputTypes update_types(const ShapeContext& c, std::size_t variables, std::size_t gradient,
                                std::size_t rate) {
  c.require_floating(0);
  const auto like_variable = [&](std::size_t i, const char* what) {
    c.require(c.dtype(i) == c.dtype(0) && c.input(i).compatible(c.input(0)), "the variable is ",
              c.type(0), ", but its ", what, " is ", c.type(i));
  };
  for (std::size_t i = 1; i < variables; ++i) like_variable(i, "slot");
  like_variable(gradient, "gradient");
  c.require(c.dtype(rate) == c.dtype(0) && c.input(rate).rank() == 0, "the learning rate is ",
            c.type(rate), ", but a scalar ", name_of(c.dtype(0)), " is needed");
  OutputTypes types;
  for (std::size_t i = 0; i < variables; ++i) types.emplace_back(c.type(0));
  return types;
}

}  // namespace belfry::kernels
