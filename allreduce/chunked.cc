#include "belfry/allreduce/chunked.h"

#include "belfry/allreduce/pieces.h"
#include "belfry/allreduce/verify/verify.h"
#include "belfry/framework/base/require.h"
#include "belfry/framework/graph/scopes.h"
#include "belfry/ops/reshape.h"

namespace belfry {
namespace {

class Chunked final : public Strategy {
 public:
  Chunked(std::unique_ptr<Strategy> inner, int chunks)
      : inner_(std::move(inner)), chunks_(chunks) {}

  std::string refusal(const std::vector<DeviceSpec>& devices) const override {
    return inner_->refusal(devices);
  }
  std::string refusal_of_processes(const std::vector<DeviceSpec>& devices) const override {
    return inner_->refusal_of_processes(devices);
  }
  bool canonical(int towers) const override { return inner_->canonical(towers); }
  std::unique_ptr<Strategy> in_one_node() const override {
    std::unique_ptr<Strategy> in_one_node = inner_->in_one_node();
    return in_one_node ? chunked(std::move(in_one_node), chunks_) : nullptr;
  }

 private:
  OutputRows combine(const GradientTable& grads, Reduction reduction) const override {
    NameScope names(grads.graph(), "Chunks");
    GradientRows rows;
    for (int t = 0; t < grads.towers(); ++t) {
      DeviceScope on(grads.graph(), grads.device(t));
      rows.emplace_back();
      for (int v = 0; v < grads.variables(); ++v)
        for (const Output& piece : cut(flat_row(grads.at(t, v).value), sizes(grads, v)))
          rows.back().push_back({piece, {}});
    }
    const GradientTable pieces(std::move(rows));
    const std::size_t first = grads.graph().size();
    // reduce() cannot tell pieces of one variable apart.
    const GradientTable sums = verified(pieces, inner_->combine(pieces, reduction), first);
    OutputRows results;
    for (int t = 0; t < grads.towers(); ++t) {
      DeviceScope on(grads.graph(), grads.device(t));
      results.push_back(joined(grads, sums.row(t)));
    }
    return results;
  }

  // The sizes of the pieces of variable v. There is one piece if there is nothing to cut.
  std::vector<std::int64_t> sizes(const GradientTable& grads, int v) const {
    const std::int64_t elements = known_elements(grads, v, "an all-reduce in chunks");
    return elements == 0 ? std::vector<std::int64_t>{0} : even_sizes(elements, chunks_);
  }

  std::vector<Output> joined(const GradientTable& grads, const std::vector<Gradient>& row) const {
    std::vector<Output> results;
    auto next = row.begin();
    for (int v = 0; v < grads.variables(); ++v) {
      std::vector<Output> pieces;
      for (std::size_t n = sizes(grads, v).size(); n > 0; --n) pieces.push_back((next++)->value);
      results.push_back(reshape(join_flat(pieces), grads.at(0, v).value.shape()));
    }
    return results;
  }

  std::unique_ptr<Strategy> inner_;
  int chunks_;
};

}  // namespace

std::unique_ptr<Strategy> chunked(std::unique_ptr<Strategy> inner, int chunks) {
  require(inner != nullptr, "chunked() needs a strategy to apply");
  require(chunks >= 1, "tensors are cut into at least one chunk, not ", chunks);
  return std::make_unique<Chunked>(std::move(inner), chunks);
}

}  // namespace belfry
