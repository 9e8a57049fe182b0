#include "belfry/trainers/update_bench.h"

#include <cstring>
#include <memory>

#include "belfry/framework/core_ops/placeholder.h"
#include "belfry/framework/session.h"
#include "belfry/towers/replicate.h"
#include "belfry/trainers/device_flag.h"
#include "belfry/trainers/interleaved.h"
#include "belfry/trainers/optimizer.h"
#include "belfry/trainers/statistics.h"

namespace belfry {
namespace {

// The graph that all cells run, and what they are fed.
class Problem {
 public:
  Problem(const std::vector<Shape>& shapes, const std::string& strategy,
          const ReductionBenchOptions& options) {
    const std::vector<TowerRecord> towers =
        replicate(graph_, options.devices, VariablePolicy::kReplicated, [&](Tower&) {
          for (std::size_t n = 0; n < shapes.size(); ++n) {
            variable(graph_, cat("v", n), shapes[n],
                     {.dtype = options.dtype, .initializer = init::zeros()});
            placeholder(graph_, cat("gradient", n), options.dtype, shapes[n]);
          }
        });
    std::vector<std::vector<Gradient>> rows;
    for (const TowerRecord& tower : towers) {
      rows.emplace_back();
      for (std::size_t n = 0; n < shapes.size(); ++n) {
        rows.back().push_back({tower.inputs[n], tower.trainables[n]});
        variables_.push_back(tower.trainables[n]);
        feed_types_.push_back({tower.inputs[n], shapes[n]});
        feeds_.push_back(gradient(shapes[n], options.dtype, tower.index));
      }
    }
    update_ = &apply_gradients(momentum(0.01),
                               make_strategy(strategy)->reduce(GradientTable(std::move(rows)),
                                                               {.reduction = options.reduction}));
  }

  const Graph& graph() const { return graph_; }
  const std::vector<Variable>& variables() const { return variables_; }
  Step& prepare(Session& session) const {
    const Fetch fetches[] = {*update_};
    return session.prepare(fetches, feed_types_);
  }
  void run(Step& step) const { step.run(feeds_); }

 private:
  static Tensor gradient(const Shape& shape, DType dtype, int tower) {
    Tensor tensor(shape, dtype);
    visit_floating(dtype, [&]<class T>(T) {
      std::int64_t i = 0;
      for (T& value : tensor.mutable_data<T>())
        value = static_cast<T>((i++ * 7 + tower * 13) % 1001 - 500) / T(3000);
    });
    return tensor;
  }

  Graph graph_;
  std::vector<Variable> variables_;  // of all towers
  std::vector<FeedType> feed_types_;
  std::vector<Tensor> feeds_;
  Node* update_ = nullptr;
};

std::int64_t differences(const Tensor& a, const Tensor& b) {
  const std::size_t size = size_of(a.dtype());
  std::int64_t different = 0;
  for (std::size_t at = 0; at < a.bytes(); at += size)
    different += std::memcmp(a.raw() + at, b.raw() + at, size) != 0 ? 1 : 0;
  return different;
}

// After two steps of each session.
void check(const Problem& problem, const std::vector<std::unique_ptr<Session>>& sessions,
           const std::vector<Step*>& steps, std::vector<UpdateCell>& cells) {
  for (std::size_t c = 0; c < cells.size(); ++c) {
    for (int run = 0; run < 2; ++run) problem.run(*steps[c]);
    cells[c].wrong = 0;
    for (const Variable& variable : problem.variables())
      *cells[c].wrong += differences(sessions[0]->read(variable), sessions[c]->read(variable));
  }
}

}  // namespace

UpdateBench bench_update(const std::vector<Shape>& shapes, const std::string& strategy,
                         const ReductionBenchOptions& options) {
  const Problem problem(shapes, strategy, options);
  UpdateBench bench;
  for (const Shape& shape : shapes) bench.elements += shape.elements();
  bench.bytes = bench.elements * static_cast<std::int64_t>(size_of(options.dtype));
  std::vector<std::unique_ptr<Session>> sessions;
  std::vector<Step*> steps;
  Interleaved ways;
  for (const bool share : {false, true})
    for (const bool fuse : {false, true}) {
      bench.cells.push_back({.fuse_updates = fuse, .share_replicas = share});
      sessions.push_back(std::make_unique<Session>(
          problem.graph(), SessionOptions{.device_count = device_count(options.devices),
                                          .threads = options.threads,
                                          .fuse_updates = fuse,
                                          .share_replicas = share}));
      steps.push_back(&problem.prepare(*sessions.back()));
      ways.add([&problem, step = steps.back()] { problem.run(*step); });
    }
  if (options.check) check(problem, sessions, steps, bench.cells);
  ways.run(options.warmup, options.iterations);
  const std::vector<double> off = ways.rounds(0);
  for (std::size_t c = 0; c < bench.cells.size(); ++c) {
    bench.cells[c].seconds = ways.seconds(static_cast<int>(c));
    bench.cells[c].ratio = paired_ratio(off, ways.rounds(static_cast<int>(c))).median;
  }
  return bench;
}

}  // namespace belfry
