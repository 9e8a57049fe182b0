#include "update_bench.h"

#include <cmath>
#include <cstring>
#include <functional>
#include <limits>
#include <memory>

#include "belfry/framework/base/text.h"
#include "belfry/framework/core_ops/initializers.h"
#include "belfry/framework/core_ops/placeholder.h"
#include "belfry/framework/run/session.h"
#include "belfry/towers/replicate.h"
#include "belfry/trainers/machine/planned_memory.h"
#include "belfry/trainers/optimizers/optimizer.h"
#include "belfry/trainers/util/busy.h"
#include "belfry/trainers/util/console.h"
#include "belfry/trainers/util/device_list.h"
#include "belfry/trainers/util/interleaved.h"
#include "belfry/trainers/util/statistics.h"
#include "byte_limit.h"

namespace belfry {
namespace {

constexpr double kRate = 0.01, kMomentum = 0.9;
constexpr int kCheckedSteps = 2;

// Element i of tower t's gradient.
template <class T>
T gradient_at(std::int64_t i, int t) {
  return static_cast<T>((i * 7 + t * 13) % 1001 - 500) / T(3000);
}

// The graph that all cells run, and their feeds.
class Problem {
 public:
  Problem(const std::vector<Shape>& shapes, const std::string& strategy,
          const ReductionBenchOptions& options)
      : options_(options) {
    const std::vector<TowerRecord> towers =
        replicate(graph_, options.devices, VariablePolicy::kReplicated, [&](Tower&) {
          for (std::size_t n = 0; n < shapes.size(); ++n) {
            variable(graph_, cat("v", n), shapes[n],
                     {.dtype = options.dtype, .initializer = init::zeros()});
            placeholder(graph_, cat("gradient", n), options.dtype, shapes[n]);
          }
        });
    GradientRows rows;
    for (const TowerRecord& tower : towers) {
      rows.emplace_back();
      for (std::size_t n = 0; n < shapes.size(); ++n) {
        rows.back().push_back({tower.inputs[n], tower.trainables[n]});
        variables_.push_back(tower.trainables[n]);
        feed_types_.push_back({tower.inputs[n], shapes[n]});
        bytes_ += variables_.back().node().output_type(0).bytes();
      }
    }
    update_ = &apply_gradients(momentum(kRate, kMomentum),
                               make_strategy(strategy)->reduce(GradientTable(std::move(rows)),
                                                               {.reduction = options.reduction}));
  }

  // Bytes of the variables of all towers; gradients are as large.
  std::int64_t bytes() const { return bytes_; }
  const std::vector<Variable>& variables() const { return variables_; }

  std::unique_ptr<Session> session(bool fuse, bool share, bool dry_run) const {
    return std::make_unique<Session>(graph_,
                                     SessionOptions{.device_count = device_count(options_.devices),
                                                    .logical_gpus = options_.logical_gpus,
                                                    .dry_run = dry_run,
                                                    .fuse = fuse,
                                                    .share_replicas = share,
                                                    .deterministic = options_.deterministic,
                                                    .threads = options_.threads});
  }
  CompiledStep& prepare(Session& session) const {
    const Fetch fetches[] = {*update_};
    return session.prepare(fetches, feed_types_);
  }

  void make_feeds() {
    const int per_tower = static_cast<int>(feed_types_.size()) / towers();
    for (const FeedType& feed : feed_types_)
      feeds_.push_back(gradient(feed.shape, static_cast<int>(feeds_.size()) / per_tower));
  }
  void run(CompiledStep& step) const { step.run(feeds_); }

  // Elements of a variable after kCheckedSteps that differ too much from momentum's rule.
  std::int64_t wrong(const Tensor& value) const {
    return visit_floating(value.dtype(), [&]<class T>(T) {
      double sums = 0, factor = 0;  // of a gradient: its sum with momentum; all that was taken
      for (int step = 0; step < kCheckedSteps; ++step) factor += sums = kMomentum * sums + 1;
      // Each addition rounds a sum of at most towers() numbers below 1, and each step a few more.
      const double tolerance = (towers() * towers() + 4.0 * kCheckedSteps) * kRate * factor *
                               std::numeric_limits<T>::epsilon();
      std::int64_t i = 0, different = 0;
      for (const T& got : value.data<T>()) {
        double total = 0;
        for (int t = 0; t < towers(); ++t) total += gradient_at<T>(i, t);
        if (options_.reduction == Reduction::kMean) total /= towers();
        different += !(std::abs(got + kRate * factor * total) <= tolerance) ? 1 : 0;
        ++i;
      }
      return different;
    });
  }

 private:
  int towers() const { return static_cast<int>(options_.devices.size()); }

  Tensor gradient(const Shape& shape, int tower) const {
    Tensor tensor(shape, options_.dtype);
    visit_floating(options_.dtype, [&]<class T>(T) {
      std::int64_t i = 0;
      for (T& value : tensor.mutable_data<T>()) value = gradient_at<T>(i++, tower);
    });
    return tensor;
  }

  const ReductionBenchOptions& options_;
  Graph graph_;
  std::vector<Variable> variables_;  // of all towers
  std::vector<FeedType> feed_types_;
  std::vector<Tensor> feeds_;
  Node* update_ = nullptr;
  std::int64_t bytes_ = 0;
};

std::int64_t differences(const Tensor& a, const Tensor& b) {
  const std::size_t size = size_of(a.dtype());
  std::int64_t different = 0;
  for (std::size_t at = 0; at < a.bytes(); at += size)
    different += std::memcmp(a.raw() + at, b.raw() + at, size) != 0 ? 1 : 0;
  return different;
}

void check(const Problem& problem, const std::vector<std::unique_ptr<Session>>& sessions,
           const std::vector<CompiledStep*>& steps, std::vector<UpdateCell>& cells,
           const std::function<void(const char*, std::size_t)>& show) {
  for (std::size_t c = 0; c < cells.size(); ++c) {
    for (int run = 0; run < kCheckedSteps; ++run) problem.run(*steps[c]);
    cells[c].wrong = 0;
    for (const Variable& variable : problem.variables()) {
      const Tensor value = sessions[c]->read(variable);
      *cells[c].wrong +=
          c == 0 ? problem.wrong(value) : differences(sessions[0]->read(variable), value);
      show("checked case ", c + 1);
    }
  }
}

// Both off, fused, shared, both.
std::vector<UpdateCell> four_cells() {
  std::vector<UpdateCell> cells;
  for (const bool share : {false, true})
    for (const bool fuse : {false, true})
      cells.push_back({.fuse_updates = fuse, .share_replicas = share});
  return cells;
}

}  // namespace

UpdateBench bench_update(const std::vector<Shape>& shapes, const std::string& strategy,
                         const ReductionBenchOptions& options) {
  Problem problem(shapes, strategy, options);
  problem.make_feeds();
  const auto towers = static_cast<int>(options.devices.size());
  UpdateBench bench{.bytes = problem.bytes() / towers, .cells = four_cells()};
  for (const Shape& shape : shapes) bench.elements += shape.elements();
  std::vector<std::unique_ptr<Session>> sessions;
  std::vector<CompiledStep*> steps;
  const auto show = [&](const char* what, std::size_t done) {
    show_if_due(options.console, "# ", strategy, ": ", what, done, "/", bench.cells.size());
  };
  Interleaved ways;
  for (const UpdateCell& cell : bench.cells) {
    const Busy busy(cat("preparing ", strategy));
    sessions.push_back(problem.session(cell.fuse_updates, cell.share_replicas, false));
    steps.push_back(&problem.prepare(*sessions.back()));
    ways.add([&problem, step = steps.back()] { problem.run(*step); });
    show("prepared case ", steps.size());
  }
  if (options.check) check(problem, sessions, steps, bench.cells, show);
  ByteLimit limit(options.devices, options.logical_gpus, bench.bytes,
                  std::min(sessions[0]->threads(), towers));
  const int limit_way = ways.add([&] { limit.run(options.aggregate); });
  ways.on_call([&](std::int64_t made, std::int64_t all) {
    show_if_due(options.console, "# ", strategy, ": run ", made, "/", all);
  });
  ways.run(options.warmup, options.iterations);
  bench.limit_seconds = ways.seconds(limit_way) / options.aggregate;
  const std::vector<double> off = ways.rounds(0);
  for (std::size_t c = 0; c < bench.cells.size(); ++c) {
    bench.cells[c].seconds = ways.seconds(static_cast<int>(c));
    bench.cells[c].ratio = paired_ratio(off, ways.rounds(static_cast<int>(c))).median;
  }
  return bench;
}

std::int64_t update_memory(const std::vector<Shape>& shapes, const std::string& strategy,
                           const ReductionBenchOptions& options) {
  const Problem problem(shapes, strategy, options);
  std::int64_t bytes = 2 * problem.bytes();  // the gradients, and the buffers of the limit
  for (const UpdateCell& cell : four_cells()) {
    const std::unique_ptr<Session> session =
        problem.session(cell.fuse_updates, cell.share_replicas, true);
    problem.prepare(*session);
    bytes += host_bytes(session->device_use());
  }
  return bytes;
}

}  // namespace belfry
