// The gradients of all towers, which strategies combine.
#pragma once
#include <span>
#include <string>
#include <vector>

#include "belfry/framework/gradients/gradients.h"

namespace belfry {

// Gradients, or tensors in their place, [tower][variable].
using GradientRows = std::vector<std::vector<Gradient>>;
using OutputRows = std::vector<std::vector<Output>>;

// at(t, v): the gradient of variable v on tower t, on t's device. Rows agree: the same variables
// (by logical name), in the same order, with the same shapes and dtypes. Tensors that are not the
// gradient of one variable, such as parts of a packed table, have an empty variable.
class GradientTable {
 public:
  // rows[t][v]. Throws InvalidArgument naming the variable and both lines if rows disagree, and if
  // there are no rows, or one is empty or of another graph.
  explicit GradientTable(GradientRows rows);

  int towers() const { return static_cast<int>(rows_.size()); }
  int variables() const { return static_cast<int>(rows_[0].size()); }
  const Gradient& at(int t, int v) const;
  const std::vector<Gradient>& row(int t) const;
  const GradientRows& rows() const { return rows_; }
  // The gradients of variable v on all towers, in their order.
  std::vector<Output> values(int v) const;
  // Whether all towers share their variables, as a single tower does.
  bool shares_variables() const { return at(towers() - 1, 0).variable == at(0, 0).variable; }
  // Where tower t computes: the device of its first gradient that requests one.
  const DeviceSpec& device(int t) const;
  std::vector<DeviceSpec> devices() const { return devices_; }
  Graph& graph() const { return rows_[0][0].value.graph(); }

  // The same variables and devices with other values[t][v], e.g. combined ones. Throws
  // InvalidArgument if the values differ from the table's in number, shape or dtype.
  GradientTable with(const OutputRows& values) const;
  // Some of its variables, in the order of `which`, on the same devices.
  GradientTable columns(std::span<const int> which) const;

  // The index of variable v in the table that columns() took it from, or in this one; and the
  // number of variables there. Strategies that rotate over devices use these.
  int number(int v) const { return numbers_.at(static_cast<std::size_t>(v)); }
  int numbers() const { return total_; }

 private:
  GradientRows rows_;
  std::vector<DeviceSpec> devices_;
  std::vector<int> numbers_;
  int total_ = 0;
};

}  // namespace belfry
