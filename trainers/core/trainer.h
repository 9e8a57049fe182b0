// Trainers: a model, data and an optimizer, made into one graph, one session and a loop of steps.
#pragma once
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "belfry/framework/run/session.h"
#include "belfry/framework/trace/trace.h"
#include "belfry/ops/precision.h"
#include "belfry/trainers/core/arithmetic.h"
#include "belfry/trainers/core/auto_choice.h"
#include "belfry/trainers/core/callbacks.h"
#include "belfry/trainers/core/loss_watch.h"
#include "belfry/trainers/core/model.h"
#include "belfry/trainers/core/trainer_options.h"
#include "belfry/trainers/core/training_activity.h"
#include "belfry/trainers/core/training_graph.h"
#include "belfry/trainers/core/training_step.h"
#include "belfry/trainers/data/batches.h"
#include "belfry/trainers/data/dataset.h"

namespace belfry {

struct Batch;
struct TowerSpan;

// The loss scale of f16 after a step.
struct LossScaleState {
  double scale = 1;
  std::int64_t skipped_steps = 0;  // since the first step of the first run
};

// How far a training run has come. A checkpoint keeps it beside the variables.
struct TrainingPosition {
  std::int64_t steps = 0;    // updates made
  std::int64_t epoch = 0;    // complete epochs
  std::int64_t samples = 0;  // that the current epoch has taken
  std::uint64_t seed = 1;    // for the order of the data
  bool operator==(const TrainingPosition&) const = default;
};

struct TrainerKind;

class Trainer {
 public:
  // Builds the graph and compiles the training step, as the kind says (find_trainer()). Borrows the
  // kind and the data, which must outlive the trainer; `test` may be null. Throws InvalidArgument
  // for whatever does not fit together: options that the kind does not take, towers that disagree,
  // a batch larger than the data, or a model for other fields. It also throws for test data with
  // other fields than the training data or without samples, and for sizes and shapes that cannot
  // be. It also throws for options without model or optimizer, or with a null callback.
  Trainer(const TrainerKind& kind, TrainerOptions options, const Dataset& train,
          const Dataset* test = nullptr);
  ~Trainer();
  Trainer(const Trainer&) = delete;
  Trainer& operator=(const Trainer&) = delete;

  // Has each callback check() its options, for programs that write something before train().
  void check_callbacks();
  // Trains to the end, or until stop(). Call it once. Throws what a kernel, the data or a callback
  // threw, when it has told all callbacks (Callback::on_error). origin_of() has its origin. What is
  // no std::exception becomes an Error (rethrow_from()). Throws Diverged after a step whose loss is
  // not finite, unless options ask to go on; all processes do so after the same step.
  void train();
  // Ends the training after the step that is running; in before_step(), before it runs. For
  // callbacks.
  void stop() { stopped_ = true; }
  // Ends the training so for a signal. What is due then, as an evaluation, is left to the run that
  // goes on. One of several processes tells the others in its next step, and all end behind that.
  void interrupt(int signal);
  bool interrupted() const { return interruption_ != 0; }
  // Before a step, in any of several processes: all compare their variables after it, and
  // training ends with an error if they differ (require_equal_processes()). For callbacks.
  void compare_processes_soon();
  // Compares them now, unless that was done; all processes call it, after so many steps. It does
  // nothing in a process that is alone.
  void compare_processes(std::int64_t steps);
  // Whether all processes are known to have the present values.
  bool is_compared() const { return graph_.process().size == 1 || compared_at_ == counts_.steps; }
  // Whether the step that is to come is the last one of its epoch.
  bool ends_epoch() const { return counts_.epoch_step + 1 == batches_.steps_per_epoch(); }
  // The signal that came to any of the processes; 0 for none.
  int interruption() const { return interruption_; }
  // Where train() is. Any thread may ask.
  const TrainingActivity& activity() const { return activity_; }
  // Whether train() has made its last step.
  bool trained() const { return counts_.are_final; }
  // For the callback that has evaluated and set the metrics: calls Callback::after_evaluation() of
  // all.
  void evaluated(const StepInfo& info);

  Graph& graph() { return graph_; }
  const Graph& graph() const { return graph_; }
  Session& session() { return *session_; }
  const TrainerKind& kind() const { return kind_; }
  const TrainerOptions& options() const { return options_; }
  // Lines for people: what "auto" chose for options().aggregation.allreduce, and why. "" if it was
  // not asked for.
  const std::string& choice() const { return choice_; }
  // The choice, for runs that go on from this one; none without "auto".
  std::optional<KeptChoice> kept_choice() const;
  // The training towers, one for each of options().devices, in their order.
  const std::vector<TowerRecord>& towers() const { return built_.towers; }
  // All that was built, with the towers.
  const TrainingGraph& built() const { return built_; }
  const BatchPlan& batches() const { return batches_; }
  const Dataset& train_data() const { return train_; }
  const Dataset* test_data() const { return test_; }
  // Shows people a line (TrainerOptions::say). For callbacks.
  void say(std::string_view line) const {
    if (options_.say) options_.say(line);
  }
  // run_identity() of this run. The first call works it out, and reads the data.
  const JsonValue& identity() const;
  // The first file of the training data that has other content than identity() read; "" for none.
  // It looks at the content only if the size or the time of a file has changed since the last call.
  std::string changed_data() const;

  // Goes on where another run stopped; its epochs and steps count as this run's. With the same seed
  // and global batch the order of the data is that of a run that never stopped; another global
  // batch goes on at the last whole one of its own. Call it before train(). Throws InvalidArgument
  // for negative numbers, as check_position() does.
  void resume(const TrainingPosition& position);
  static void check_position(const TrainingPosition& position);
  TrainingPosition position() const;

  // The number of steps at the end, as the options ask for.
  std::int64_t total_steps() const;
  // The number of complete steps, with those of the runs that this one goes on from.
  std::int64_t steps() const { return counts_.steps; }
  // The number of steps since resume().
  std::int64_t steps_of_run() const { return counts_.steps - counts_.first_step; }
  // The learning rate as text, for comparisons with other runs: LearningRate::str(run).
  std::string learning_rate() const { return options_.optimizer.rate().str(info()); }
  // Whether the steps so far had other rates in a run of so many steps in all.
  bool rates_differ(std::int64_t total) const {
    return depends_on_length(options_.optimizer.rate(), info(), total, counts_.steps);
  }
  int epochs() const { return counts_.epochs; }

  // Sets what metric() says before the first step and evaluation: the metrics of the run that this
  // one goes on from.
  void resume_metrics(const std::vector<NamedValue>& values);
  // For "loss" and the tower function's metrics, the mean over batches and towers of the last step,
  // weighted by their samples where these differ; NaN before the first step. For "validation_loss"
  // and "validation_<metric>", the value of the last evaluation. Throws NotFoundError, with the
  // names there are.
  double metric(std::string_view name) const;
  bool has_metric(std::string_view name) const { return find_metric(name) != nullptr; }
  // Sets a metric, for callbacks. When those of the step, epoch or evaluation have all been called,
  // their after_metrics() is.
  void set_metric(std::string_view name, double value);
  // The names that metrics have after an epoch, or with test data after an evaluation: those of the
  // model, and of callbacks (Callback::metrics()).
  std::vector<std::string> expected_metrics() const;
  // The metrics of the last step, "loss" first.
  const std::vector<NamedValue>& step_metrics() const { return step_metrics_; }
  // The metrics that were set, by an evaluation for example.
  const std::vector<NamedValue>& set_metrics() const { return other_metrics_; }

  // The combined gradients of the last step, if options().keeps_gradients, by the logical names of
  // tower 0's variables. There are none before the first step, and where towers update by their
  // own. With f16 they are scaled as the loss is. If a step takes several batches, they are sums
  // over these. They are not clipped.
  std::vector<NamedTensor> gradients() const;

  // The first step of those whose losses have all been NaN or infinite since, counted from 1; none
  // if the last loss was finite. Steps that f16 skips count as others.
  std::optional<std::int64_t> not_finite_since() const { return losses_.not_finite_since(); }
  // LossWatch::growth(), and who may have made a loss that is not finite.
  std::string loss_growth() const { return losses_.growth(); }
  const Suspects& suspects() const { return suspects_; }
  // For the callback that has evaluated, in all processes: the loss, and not_finite_input() of the
  // test samples of this process.
  void note_test_loss(double loss, const std::string& input);

  // With what all processes compute.
  const Arithmetics& arithmetics() const;
  // Notes why the parts of the run before this one had other bits (earlier_bits()); "": they had
  // not. A checkpoint keeps it.
  void resume_bits(std::string earlier) { earlier_bits_ = std::move(earlier); }
  const std::string& earlier_bits() const { return earlier_bits_; }
  // Says which process computes with other instructions or libraries than rank 0, or why parts of
  // the run had other bits; "" for neither. Otherwise results are not canonical.
  std::string other_bits() const;
  // The default number of shards, before it was raised to one per device; 0: options had a number.
  int shards_by_default() const { return default_shards_; }

  // The state of the loss scale; none unless the precision is f16.
  std::optional<LossScaleState> loss_scale();

  // The plans of all compiled steps: one for each form of batches (more if a step takes several
  // batches), or one for each tower that runs free.
  std::vector<std::shared_ptr<const Plan>> plans() const;

  // The plans of one training step with full batches.
  std::vector<PlanOfStep> plans_of_step() const;
  // Bytes that cross devices in one such step, by its plans.
  std::int64_t bytes_moved() const;

  // Training samples of all towers per second of training. The first step does not count, nor do
  // evaluations and other callbacks of epochs. 0 before the second step.
  double examples_per_second() const;
  // The same in the last step alone, which may be the first; 0 before it.
  double step_examples_per_second() const { return step_examples_per_second_; }
  // Multiplications and additions per second of training, of the towers of this process: twice
  // step_multiply_adds() of model_summary.h per step. 0 before the second step.
  double flops_per_second() const;
  // The learning rate of the last step, by the optimizer's schedule; 0 before it.
  double step_learning_rate() const { return step_rate_; }

 private:
  struct Source;
  // How much is complete.
  struct Counts {
    std::int64_t steps = 0, first_step = 0;  // in all runs, and in those before this one
    std::int64_t epoch_step = 0;             // steps of the current epoch
    int epochs = 0;
    bool are_final = false;
  };
  // The steps that count for examples_per_second(), with their samples and time.
  struct Timed {
    double seconds = 0;
    std::int64_t steps = 0, samples = 0;
  };
  TowerSpan own_towers() const;
  std::function<StagedFeeds(const Batch&, std::stop_token)> stager();
  void choose_shards();
  void prepare();
  std::unique_ptr<Source> open_source();
  void agree();
  void ask(StepRequest request);
  void end_by(int signal);
  void run();
  void end();
  void tell(Callback& callback, const std::exception& error);
  void make_steps(std::unique_ptr<Source>& source);
  bool run_step(Source& source, const StepInfo& step);
  void run_batches(Source& source, Trace* trace);
  void tell_metrics(const StepInfo& info);
  void begin_to_watch();
  void look_at_input(const Batch& batch, double loss);
  void look_at_loss();
  void look_at_first_update();
  void look_at_scale();
  std::string of_any_process(const std::string& own) const;
  const NamedValue* find_metric(std::string_view name) const;
  StepInfo info() const;
  // Calls f() of each callback: the function `hook` of Callback, at a step counted from 1.
  template <class F>
  void call(const char* hook, std::int64_t step, const F& f);
  template <class F>
  void call_one(Callback& callback, const char* hook, std::int64_t step, const F& f);

  const TrainerKind& kind_;
  TrainerOptions options_;
  int default_shards_ = 0;
  std::string choice_, earlier_bits_;
  mutable std::optional<Arithmetics> arithmetics_;
  const Dataset& train_;
  const Dataset* test_;
  BatchPlan batches_;
  Graph graph_;
  TrainingGraph built_;
  std::unique_ptr<Session> session_;
  const TrainingStep* last_step_ = nullptr;
  TrainingSteps training_steps_;
  StepRange traced_ = {};
  std::vector<NamedValue> step_metrics_, other_metrics_;
  std::vector<NamedValue> new_metrics_;   // for the next after_metrics()
  std::optional<StepInfo> evaluated_at_;  // if an evaluation has set some of them
  double step_examples_per_second_ = 0, step_rate_ = 0;
  Counts counts_;
  bool stopped_ = false, warned_ = false, warned_of_test_ = false;
  int interruption_ = 0;
  TrainingActivity activity_;
  StepRequest request_;             // of this process
  bool comparison_due_ = false;     // after the running step
  std::int64_t compared_at_ = -1;   // steps
  mutable std::string data_stamp_;  // of the files that identity_ was read from
  mutable std::optional<JsonValue> identity_;
  LossWatch losses_;
  SkipWatch skips_;
  Suspects suspects_;
  double began_ = 0;  // by seconds_now()
  Timed timed_;
};

}  // namespace belfry
