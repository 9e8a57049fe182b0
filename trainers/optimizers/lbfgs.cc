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

// The moves of the last iterations, which stand for second derivatives. An iteration may have
// several, so that a long line search pushes no other iteration out.
class Memory {
 public:
  explicit Memory(int iterations) : iterations_(iterations) {}

  bool empty() const { return moves_.empty(); }
  void clear() { moves_.clear(); }

  // Moves along which the gradient does not grow say nothing about a minimum.
  void add_move(const Point& from, const Point& to, int iteration) {
    Move move{.by = difference(to.at, from.at),
              .change = difference(to.value.gradient, from.value.gradient),
              .iteration = iteration};
    move.product = dot(move.by, move.change);
    if (!(move.product > 1e-10 * norm(move.by) * norm(move.change))) return;
    moves_.push_back(std::move(move));
    while (moves_.front().iteration <= iteration - iterations_) moves_.pop_front();
  }

  // The second derivative along the last move, about.
  double curvature() const {
    return empty() ? 0 : norm(moves_.back().change) / norm(moves_.back().by);
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
    int iteration = 0;
  };
  int iterations_;
  std::deque<Move> moves_;
};

// After so many line searches that found no end of the loss (each 10^19 times as long as its first
// step) a loss counts as unbounded. One may have begun with too short a step.
constexpr int kMostFalls = 2;

// So many iterations in a row that hardly change the loss end also where it should still fall: its
// precision shows no more.
constexpr int kMostStalls = 10;

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
    if (falls_ >= kMostFalls) return MinimizeEnd::kUnbounded;
    if (gradient_norm() == 0) return MinimizeEnd::kGradient;
    const bool flat = is_flat();
    if (flat && gradient_norm() <= enough_ && moved_little()) return MinimizeEnd::kGradient;
    const double change = std::max(options_.change_tolerance, objective_.rounding);
    stalls_ = before - current_.value.loss <= change * std::abs(before) ? stalls_ + 1 : 0;
    if (stalls_ >= (flat ? 1 : kMostStalls)) return MinimizeEnd::kChange;
    return std::nullopt;
  }

  // Whether the loss has little left to fall: by its gradient, over the length of the variables, or
  // because it is what a move of their last digits adds to a loss of 0. Else the last move crossed
  // a steep valley along which the loss still falls.
  bool is_flat() const {
    const double loss = std::abs(current_.value.loss);
    const double part = std::max({1e-8, objective_.rounding, options_.gradient_tolerance});
    const double move = part * length();
    return gradient_norm() * length() <= 1e-3 * loss || loss <= memory_.curvature() * move * move;
  }
  bool moved_little() const { return move_ <= 100 * options_.gradient_tolerance * length(); }
  // Of the variables. Their way counts as well, for the minimum may be at 0.
  double length() const {
    return std::max(norm(current_.at), 0.001 * norm(difference(current_.at, first_)));
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
    const auto moves = [&](const Trial& trial) {
      return is_finite(trial) && trial.point.at != current_.at;
    };
    if (std::none_of(trials.begin(), trials.end(), moves)) {
      const auto bad = std::find_if_not(trials.begin(), trials.end(), is_finite);
      if (bad == trials.end() || !memory_.empty()) return false;
      diverge(cat(bad->point.value.not_finite, " at each of ", trials.size(), " steps tried"),
              "look at logarithms, divisions and square roots of what leads to it");
    }
    const auto chosen = std::find_if(trials.begin(), trials.end(),
                                     [&](const Trial& trial) { return trial.step == found.step; });
    contradicted_ = contradict(trials, slope);
    if (chosen == trials.end() || !moves(*chosen) || contradicted_) return false;
    watch_falls(trials, *chosen);
    move_to(trials, *chosen);
    return true;
  }

  // Whether no trial lowered the loss, and the shortest that raised it did so about as much as its
  // slopes, here and there, say that the loss falls. What rounding or a hill adds is no such
  // multiple.
  bool contradict(const std::vector<Trial>& trials, double slope) const {
    const double now = current_.value.loss, rounding = objective_.rounding * std::abs(now);
    const Trial* shortest = nullptr;
    for (const Trial& trial : trials) {
      if (trial.point.value.loss < now - rounding) return false;
      if (trial.point.value.loss > now + rounding && is_finite(trial) &&
          (!shortest || trial.step < shortest->step))
        shortest = &trial;
    }
    return shortest && shortest->slope < 0 &&
           shortest->point.value.loss - now < -10 * slope * shortest->step;
  }

  // Counts line searches in a row in which the loss fell for as long as they lengthened the step.
  void watch_falls(const std::vector<Trial>& trials, const Trial& chosen) {
    const auto is_longest = [&](const Trial& trial) { return trial.step <= chosen.step; };
    const bool fell = chosen.slope < 0 && std::ssize(trials) == LineSearchOptions().most_trials &&
                      std::all_of(trials.begin(), trials.end(), is_longest);
    falls_ = fell ? falls_ + 1 : 0;
    for (const Trial& trial : trials)
      if (trial.point.value.loss == -INFINITY) falls_ = kMostFalls;
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
      memory_.add_move(*from, trial.point, iterations_);
      from = &trial.point;
    }
    memory_.add_move(*from, chosen.point, iterations_);
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
  int falls_ = 0;              // watch_falls()
  int stalls_ = 0;             // iterations in a row that hardly changed the loss
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
    case MinimizeEnd::kNoDecrease:
      return "no step lowers the loss any more, as far as its precision shows";
    case MinimizeEnd::kUnbounded:
      return "the loss falls further the longer the step is: it seems to be unbounded below";
    case MinimizeEnd::kContradiction:
      return "no step along the gradient lowers the loss: the gradient may be wrong";
    case MinimizeEnd::kIterations: return "the limit of iterations is reached before a minimum";
    case MinimizeEnd::kEvaluations: return "the limit of evaluations is reached before a minimum";
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
