// Which gradients, of which variables and towers, the tensors of a graph are made of.
#pragma once
#include <deque>
#include <memory>
#include <vector>

#include "belfry/allreduce/verify/gradient_table.h"

namespace belfry {

// The gradients in one tensor. Variables and towers are numbered as in the table.
struct GradientMix {
  static constexpr int kNone = -1;   // no gradient
  static constexpr int kMany = -2;   // of several variables, side by side or scaled by each other
  static constexpr int kAdded = -3;  // the sum of gradients of `variable` and `other`

  int kind = kNone;  // one of these, or the variable
  int variable = kNone, other = kNone;
  // How often a tower's gradient is contained in an element: at most `times`, and at least `least`.
  // They may differ if the tensor has several parts side by side.
  struct Part {
    int tower;
    int times, least;
  };
  std::vector<Part> parts = {};  // of the towers that have one, in order
  bool exact = true;  // elements of both kinds exist; otherwise `times` only says whether

  // The part of a tower, with 0 times if it has none.
  Part of_tower(int tower) const;
  bool even() const;
  // The one tower whose gradient this is, or -1.
  int only_tower() const;
};

// Follows the gradients of a table into tensors that are made of them: from a requested tensor back
// to the gradients, and no further. Looks at no values. Shapes of gradients (Op::metadata) are not
// parts. An op that combines gradients otherwise than by adding them or laying them side by side
// counts as scaling them by each other.
class GradientFlow {
 public:
  explicit GradientFlow(const GradientTable& grads);

  // The gradients that a tensor is made of. Equal outputs of a collective have equal ones.
  struct Found {
    std::shared_ptr<const GradientMix> mix;  // never null
    int home = -1;  // of a collective's output: the tower of the input in the same place; else -1
    bool even = true;  // mix->even()
    // Each tower's gradient is in it once; if the mix is not exact, at least once.
    bool whole = false;
  };
  const Found& of(Output tensor);
  // The first variable of the table that has the very gradient tensor of `v`.
  int alias(int v) const { return alias_[static_cast<std::size_t>(v)]; }

 private:
  void start(const GradientTable& grads);
  // The place of output 0 in found_; makes room for all outputs if there is none.
  std::size_t place_of(const Node& node);
  const Found* find(const Output& tensor) const;
  bool follow_inputs(const Node& node);
  void follow(const Node& node);
  void follow_collective(const Node& node, std::vector<Found>& outputs) const;
  Found combined(const Node& node, std::size_t begin, std::size_t end, bool adds,
                 bool lays_side_by_side) const;
  Found found(GradientMix mix) const;

  std::size_t towers_;
  int first_;  // id of the first node that gives a gradient: nodes before have none
  std::vector<int> alias_;
  std::vector<int> places_;  // of nodes from `first_` on: place_of(), -1 while there is no room
  // One per output, without a mix until that is known. References stay valid while this grows.
  std::deque<Found> found_;
  std::vector<const Node*> open_;  // nodes being followed
};

// Number of participants of a collective, whose inputs are tensor-major.
std::size_t participants(const Node& collective);

}  // namespace belfry
