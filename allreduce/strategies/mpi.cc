// mpi: each bucket by one MPI_Iallreduce over the processes of a run.
#include "belfry/allreduce/combine_over_processes.h"
#include "belfry/allreduce/strategy.h"

namespace belfry {
namespace {

constexpr const char* kOneProcess =
    "mpi adds over several processes that MPI has started, and there is one; use collective";

class Mpi final : public Strategy {
 public:
  explicit Mpi(bool in_one_node = false) : in_one_node_(in_one_node) {}

  // Programs call this if there is only one process.
  std::string refusal(const std::vector<DeviceSpec>&) const override { return kOneProcess; }
  bool canonical(int) const override { return false; }
  std::string refusal_of_processes(const std::vector<DeviceSpec>&) const override { return ""; }
  std::unique_ptr<Strategy> in_one_node() const override { return std::make_unique<Mpi>(true); }

 private:
  OutputRows combine(const GradientTable& grads, Reduction reduction) const override {
    return combine_over_processes(grads, reduction == Reduction::kMean, in_one_node_,
                                  ProcessSum::kMpi);
  }

  bool in_one_node_;
};

const StrategyRegistration mpi{"mpi", [] { return std::make_unique<Mpi>(); }};

}  // namespace
}  // namespace belfry
