#include "belfry/allreduce/verify/gradient_table.h"

#include <algorithm>
#include <numeric>

#include "belfry/allreduce/verify/verify.h"
#include "belfry/framework/base/require.h"
#include "belfry/framework/base/text.h"

namespace belfry {
namespace {

std::string_view label(const Gradient& g) { return g.variable ? g.variable.logical_name() : ""; }

SourceLine line_of(const Gradient& g) {
  return g.variable ? g.variable.node().origin().site : g.value.node().origin().site;
}

// "'fc/W' f32[4,3] (built at model.cc:41)".
std::string describe(const Gradient& g) {
  const std::string name = g.variable ? std::string(label(g)) : g.value.name();
  return TensorText(name, g.value.type(), line_of(g));
}

bool has(const std::vector<Gradient>& row, const Gradient& wanted) {
  return std::ranges::any_of(row, [&](const Gradient& g) { return label(g) == label(wanted); });
}

// Reports a gradient of `row` that `other` lacks, if there is one.
void require_all_in(const std::vector<Gradient>& row, std::size_t t,
                    const std::vector<Gradient>& other, std::size_t u) {
  for (const Gradient& g : row)
    require(has(other, g), "towers disagree: tower ", t, " has a gradient of variable ",
            describe(g), ", but tower ", u, ", whose gradients are built at ",
            other[0].value.node().origin().site, ", has none");
}

bool same_variables(const std::vector<Gradient>& main, const std::vector<Gradient>& row) {
  const auto same = [](const Gradient& a, const Gradient& b) {
    return bool(a.variable) == bool(b.variable) &&
           (!a.variable || a.variable.logical_name() == b.variable.logical_name());
  };
  return std::ranges::equal(main, row, same);
}

void require_same(const std::vector<Gradient>& main, const std::vector<Gradient>& row,
                  std::size_t t) {
  if (!same_variables(main, row)) {
    require_all_in(main, 0, row, t);
    require_all_in(row, t, main, 0);
  }
  require(main.size() == row.size(), "towers disagree: tower 0 has ", main.size(),
          " gradients (built at ", main[0].value.node().origin().site, "), but tower ", t, " has ",
          row.size(), " (built at ", row[0].value.node().origin().site, ")");
  for (std::size_t v = 0; v < main.size(); ++v) {
    if (label(main[v]) == label(row[v]) && same_type(main[v].value, row[v].value)) continue;
    require(label(main[v]) == label(row[v]), "towers disagree on the order of gradients: number ",
            v, " is that of ", describe(main[v]), " in tower 0, but that of ", describe(row[v]),
            " in tower ", t);
    throw InvalidArgument(cat("towers disagree on variable '", label(main[v]),
                              "': the gradient of ", describe(main[v]),
                              " of tower 0 does not match ", describe(row[v]), " of tower ", t));
  }
}

}  // namespace

GradientTable::GradientTable(GradientRows rows) : rows_(std::move(rows)) {
  require(!rows_.empty(), "a gradient table needs at least one tower");
  for (std::size_t t = 0; t < rows_.size(); ++t) {
    require(!rows_[t].empty(), "tower ", t, " has no gradients");
    for (const Gradient& g : rows_[t]) {
      if (g.value && &g.value.graph() == &rows_[0][0].value.graph()) continue;
      require(static_cast<bool>(g.value), "tower ", t, " has an empty gradient",
              g.variable ? cat(" of variable '", label(g), "' (built at ", line_of(g), ")") : "");
      throw InvalidArgument(
          cat("tower ", t, ": the gradient ", describe(g), " belongs to another graph"));
    }
  }
  for (std::size_t t = 1; t < rows_.size(); ++t) require_same(rows_[0], rows_[t], t);
  total_ = variables();
  numbers_.resize(rows_[0].size());
  std::iota(numbers_.begin(), numbers_.end(), 0);
  for (const std::vector<Gradient>& row : rows_) {
    const auto placed =
        std::ranges::find_if(row, [](const Gradient& g) { return !g.value.device().empty(); });
    devices_.push_back(placed == row.end() ? DeviceSpec() : placed->value.device());
  }
  verify_rows(rows_, devices_);
}

const Gradient& GradientTable::at(int t, int v) const {
  return row(t).at(static_cast<std::size_t>(v));
}

const std::vector<Gradient>& GradientTable::row(int t) const {
  return rows_.at(static_cast<std::size_t>(t));
}

std::vector<Output> GradientTable::values(int v) const {
  std::vector<Output> result;
  for (int t = 0; t < towers(); ++t) result.push_back(at(t, v).value);
  return result;
}

const DeviceSpec& GradientTable::device(int t) const {
  return devices_.at(static_cast<std::size_t>(t));
}

GradientTable GradientTable::with(const OutputRows& values) const {
  verify_layout(rows_, values);
  GradientTable result = *this;
  for (std::size_t t = 0; t < values.size(); ++t)
    for (std::size_t v = 0; v < values[t].size(); ++v) result.rows_[t][v].value = values[t][v];
  return result;
}

GradientTable GradientTable::columns(std::span<const int> which) const {
  require(!which.empty(), "a gradient table needs at least one variable");
  GradientTable result = *this;
  result.numbers_.clear();
  for (const int v : which) result.numbers_.push_back(number(v));
  for (std::size_t t = 0; t < rows_.size(); ++t) {
    result.rows_[t].clear();
    for (const int v : which) result.rows_[t].push_back(at(static_cast<int>(t), v));
  }
  return result;
}

}  // namespace belfry
