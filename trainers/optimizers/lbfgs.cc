#include "belfry/trainers/optimizers/lbfgs.h"

#include <algorithm>
#include <cmath>
#include <deque>
#include <optional>

#include "belfry/framework/base/require.h"
#include "belfry/framework/base/text.h"
#include "belfry/trainers/optimizers/line_search.h"

namespace belfry {
namespace {
namespace lbfgs {

using Vector = std::vector<double>;

double dot(const Vector& a, const Vector& b) {
  double sum = 0;
  for (std::size_t i = 0; i < a.size(); ++i) sum += a[i] * b[i];
  return sum;
}

// Without squares that overflow.
double norm(const Vector& a) {
  double largest = 0, sum = 0;
  for (const double x : a) largest = std::max(largest, std::abs(x));
  if (largest == 0) return 0;
  for (const double x : a) sum += (x / largest) * (x / largest);
  return largest * std::sqrt(sum);
}

// a += factor * b.
void add(Vector& a, double factor, const Vector& b) {
  for (std::size_t i = 0; i < a.size(); ++i) a[i] += factor * b[i];
}

Vector difference(const Vector& a, const Vector& b) {
  Vector result = a;
  add(result, -1, b);
  return result;
}

struct Point {
  Vector at;
  ObjectiveFunction::Value value;
};

// The moves of the last iterations, which stand for second derivatives.
class Memory {
 public:
  explicit Memory(int size) : size_(static_cast<std::size_t>(size)) {}

  bool empty() const { return moves_.empty(); }
  void clear() { moves_.clear(); }

  // Moves along which the gradient does not grow say nothing about a minimum.
  void add_move(const Point& from, const Point& to) {
    Move move{difference(to.at, from.at), difference(to.value.gradient, from.value.gradient)};
    move.product = dot(move.by, move.change);
    if (!(move.product > 1e-10 * norm(move.by) * norm(move.change))) return;
    moves_.push_back(std::move(move));
    if (moves_.size() > size_) moves_.pop_front();
  }

  // The two-loop recursion: the way to the minimum of the quadratic model that the moves describe.
  Vector direction(const Vector& gradient) const {
    Vector way = gradient;
    std::vector<double> taken(moves_.size());
    for (std::size_t i = moves_.size(); i-- > 0;) {
      taken[i] = dot(moves_[i].by, way) / moves_[i].product;
      add(way, -taken[i], moves_[i].change);
    }
    double scale = -1;
    if (!empty()) {
      const double change = norm(moves_.back().change);
      scale = -moves_.back().product / change / change;
    }
    for (double& x : way) x *= scale;
    for (std::size_t i = 0; i < moves_.size(); ++i)
      add(way, -taken[i] - dot(moves_[i].change, way) / moves_[i].product, moves_[i].by);
    return way;
  }

 private:
  struct Move {
    Vector by, change;   // of the point, and of its gradient
    double product = 0;  // of both
  };
  std::size_t size_;
  std::deque<Move> moves_;
};

// A point on the line of an iteration.
struct Trial {
  double step = 0, slope = 0;
  Point point;
};

bool is_finite(const Trial& trial) { return trial.point.value.not_finite.empty(); }

class Descent {
 public:
  Descent(const ObjectiveFunction& objective, Vector& point, const MinimizeOptions& options)
      : objective_(objective), reached_(point), options_(options), memory_(options.memory) {}

  MinimizeResult run() {
    current_ = evaluate(reached_);
    choose_unit();
    if (const std::string& bad = current_.value.not_finite; !bad.empty())
      diverge(cat(bad, " at the first values of the variables"),
              "begin at values where the loss and its gradients are finite");
    reached_ = first_ = current_.at;
    enough_ = options_.gradient_tolerance * gradient_norm();
    move_ = options_.first_move > 0 ? options_.first_move : 0.3 * std::max(1.0, norm(reached_));
    std::optional<MinimizeEnd> end;
    if (gradient_norm() == 0) end = MinimizeEnd::kGradient;
    while (!end) end = iterate();
    return {iterations_, evaluations_, loss(), gradient_norm() * unit_, *end};
  }

 private:
  Point evaluate(Vector at) {
    ++evaluations_;
    Point point{std::move(at), {}};
    point.value = objective_.evaluate(point.at);
    change_unit(point.value);
    return point;
  }
  // In this unit of the loss, products of losses and gradients do not overflow. As a power of two
  // it changes no bits.
  void choose_unit() {
    double largest = std::abs(current_.value.loss);
    for (const double slope : current_.value.gradient) largest = std::max(largest, std::abs(slope));
    if (!current_.value.not_finite.empty() || largest == 0) return;
    unit_ = std::ldexp(1, std::clamp(std::ilogb(largest), -1000, 1000));
    change_unit(current_.value);
  }
  void change_unit(ObjectiveFunction::Value& value) const {
    value.loss /= unit_;
    for (double& slope : value.gradient) slope /= unit_;
  }
  double loss() const { return current_.value.loss * unit_; }
  double gradient_norm() const { return norm(current_.value.gradient); }
  int evaluations_left() const { return options_.max_evaluations - evaluations_; }

  // Makes one move. If the memory leads to none, forgets it, for the steepest descent is left.
  std::optional<MinimizeEnd> iterate() {
    if (iterations_ >= options_.max_iterations) return MinimizeEnd::kIterations;
    if (evaluations_left() <= 0) return MinimizeEnd::kEvaluations;
    const double before = current_.value.loss;
    if (!move()) {
      if (memory_.empty() && contradicted_) return MinimizeEnd::kContradiction;
      if (memory_.empty() && evaluations_left() > 0) return MinimizeEnd::kNoDecrease;
      memory_.clear();
      return std::nullopt;
    }
    ++iterations_;
    reached_ = current_.at;
    if (objective_.reach) objective_.reach(reached_);
    const MinimizeIteration state{iterations_, evaluations_, loss(), gradient_norm() * unit_,
                                  move_};
    if (options_.callback && !options_.callback(state)) return MinimizeEnd::kCallback;
    if (gradient_norm() <= enough_ && is_near()) return MinimizeEnd::kGradient;
    const double change = std::max(options_.change_tolerance, objective_.rounding);
    if (before - current_.value.loss <= change * std::abs(before)) return MinimizeEnd::kChange;
    return std::nullopt;
  }

  // Whether the next move would be short, so that a small gradient is not just less steep.
  bool is_near() const {
    const double length = std::max(norm(current_.at), norm(difference(current_.at, first_)));
    return norm(memory_.direction(current_.value.gradient)) <=
           std::sqrt(options_.gradient_tolerance) * length;
  }

  // Whether the line search has found a step, and the point has moved by it.
  bool move() {
    Vector direction = memory_.direction(current_.value.gradient);
    if (const double length = norm(direction); memory_.empty())
      for (double& x : direction) x /= length;
    const double slope = dot(current_.value.gradient, direction);
    if (!(slope < 0)) return false;
    std::vector<Trial> trials;
    const LinePoint found = search_line(
        {0, current_.value.loss, slope},
        [&](double step) {
          Vector at = current_.at;
          add(at, step, direction);
          Trial& trial = trials.emplace_back(step, NAN, evaluate(std::move(at)));
          if (!is_finite(trial)) return LinePoint{step, NAN, NAN};
          trial.slope = dot(trial.point.value.gradient, direction);
          return LinePoint{step, trial.point.value.loss, trial.slope};
        },
        line_options());
    if (std::none_of(trials.begin(), trials.end(), is_finite))
      diverge(
          cat(trials.back().point.value.not_finite, " at each of ", trials.size(), " steps tried"),
          "look at logarithms, divisions and square roots of what leads to it");
    const auto chosen = std::find_if(trials.begin(), trials.end(),
                                     [&](const Trial& trial) { return trial.step == found.step; });
    contradicted_ = contradict(trials);
    if (chosen == trials.end() || contradicted_) return false;
    move_to(trials, *chosen);
    return true;
  }

  // Whether no trial lowered the loss, and some raised it although slopes there and before say that
  // it falls.
  bool contradict(const std::vector<Trial>& trials) const {
    const double now = current_.value.loss, rounding = objective_.rounding * std::abs(now);
    const auto raised = [&](const Trial& trial) {
      return trial.slope < 0 && trial.point.value.loss > now + rounding;
    };
    const auto lowered = [&](const Trial& trial) {
      return trial.point.value.loss < now - rounding;
    };
    return std::any_of(trials.begin(), trials.end(), raised) &&
           std::none_of(trials.begin(), trials.end(), lowered);
  }

  LineSearchOptions line_options() const {
    LineSearchOptions line{.first_step = memory_.empty() ? move_ : 1,
                           .decrease = options_.decrease,
                           .curvature = options_.curvature,
                           .rounding = objective_.rounding};
    line.most_trials = std::min(line.most_trials, evaluations_left());
    return line;
  }

  // Other trials that lowered the loss are moves on the way, whose gradients are known anyway.
  void move_to(std::vector<Trial>& trials, Trial& chosen) {
    const Point start = std::move(current_);
    const Point* from = &start;
    for (const Trial& trial : trials) {
      if (&trial == &chosen || !is_finite(trial)) continue;
      if (trial.point.value.loss >= start.value.loss) continue;
      memory_.add_move(*from, trial.point);
      from = &trial.point;
    }
    memory_.add_move(*from, chosen.point);
    move_ = norm(difference(chosen.point.at, start.at));
    current_ = std::move(chosen.point);
  }

  [[noreturn]] void diverge(const std::string& why, const std::string& advice) const {
    throw Error(ErrorFields{.kind = ErrorKind::kDiverged,
                            .step = iterations_ + 1,
                            .why = cat("minimize, iteration ", iterations_ + 1, ": ", why),
                            .advice = advice});
  }

  const ObjectiveFunction& objective_;
  Vector& reached_;
  const MinimizeOptions& options_;
  Memory memory_;
  Point current_;
  Vector first_;               // values of the variables
  double unit_ = 1;            // of losses and gradients here
  bool contradicted_ = false;  // by the last line search
  int iterations_ = 0, evaluations_ = 0;
  double enough_ = 0;  // the norm of the gradient at which to end
  double move_ = 0;    // the length of the last move
};

void check(const MinimizeOptions& options) {
  require(options.memory >= 1, "minimize: memory=", options.memory, ", but must be at least 1");
  require(options.max_iterations >= 1, "minimize: max_iterations=", options.max_iterations,
          ", but must be at least 1");
  require(options.max_evaluations >= 1, "minimize: max_evaluations=", options.max_evaluations,
          ", but must be at least 1");
  const std::pair<const char*, double> lengths[] = {
      {"gradient_tolerance", options.gradient_tolerance},
      {"change_tolerance", options.change_tolerance},
      {"first_move", options.first_move}};
  for (const auto& [name, value] : lengths)
    require(std::isfinite(value) && value >= 0, "minimize: ", name, "=", value,
            ", but must be a number of at least 0");
  require(0 < options.decrease && options.decrease < options.curvature && options.curvature < 1,
          "minimize: decrease=", options.decrease, " and curvature=", options.curvature,
          ", but 0 < decrease < curvature < 1 must hold");
}

}  // namespace lbfgs
}  // namespace

std::string_view text_of(MinimizeEnd end) {
  switch (end) {
    case MinimizeEnd::kGradient: return "the gradient is small enough";
    case MinimizeEnd::kChange: return "the loss hardly changes any more";
    case MinimizeEnd::kNoDecrease: return "no step lowers the loss";
    case MinimizeEnd::kContradiction:
      return "no step along the gradient lowers the loss: the gradient may be wrong";
    case MinimizeEnd::kIterations: return "the limit of iterations is reached";
    case MinimizeEnd::kEvaluations: return "the limit of evaluations is reached";
    case MinimizeEnd::kCallback: return "the callback ended it";
  }
  throw InternalError("an unknown MinimizeEnd");
}

std::string MinimizeResult::str() const {
  return cat(iterations, " iterations, ", evaluations, " evaluations: loss ", loss,
             ", norm of the gradient ", gradient_norm, "; ", text_of(end));
}

MinimizeResult minimize_by_lbfgs(const ObjectiveFunction& objective, std::vector<double>& point,
                                 const MinimizeOptions& options) {
  lbfgs::check(options);
  return lbfgs::Descent(objective, point, options).run();
}

}  // namespace belfry
