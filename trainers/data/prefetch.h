// Prepares coming batches while the current one is trained with.
#pragma once
#include <condition_variable>
#include <exception>
#include <functional>
#include <mutex>
#include <optional>
#include <stop_token>
#include <thread>
#include <vector>

#include "belfry/framework/run/session.h"
#include "belfry/trainers/data/batches.h"
#include "belfry/trainers/data/dataset.h"
#include "belfry/trainers/data/gatherer.h"

namespace belfry {

// The input of one run of a training step.
struct Batch {
  BatchPlan::Position position;
  std::size_t form;  // of BatchPlan::forms()
  std::int64_t fields;
  // tensors[t * fields + f]: field f of tower t (of the only one: t = 0), [rows of the form,
  // sample...], aligned to 64 bytes. Flat, so that it can be fed to a prepared step as it is.
  std::vector<Tensor> tensors;
  StagedFeeds staged = {};  // of a Prefetcher that stages: for whoever runs the step to take

  std::span<const Tensor> tower(std::int64_t t) const {
    return std::span(tensors).subspan(static_cast<std::size_t>(t * fields),
                                      static_cast<std::size_t>(fields));
  }
};

// Of one batch.
std::int64_t bytes_of_batch(const Dataset& dataset, std::int64_t samples);

// Some towers of a BatchPlan that follow each other.
struct TowerSpan {
  TowerSpan(std::int64_t tower) : first(tower) {}  // NOLINT: one is a span
  TowerSpan(std::int64_t begin, std::int64_t towers) : first(begin), count(towers) {}
  std::int64_t first, count = 1;
};

// An endless stream of batches in the order of a BatchPlan, epoch after epoch, of all towers or of
// some of them. A thread gathers them into a ring of slots; another one stages them. The batches do
// not depend on timing or on the numbers of slots and of data workers. Neither side allocates once
// the constructor has returned. One thread consumes.
class Prefetcher {
 public:
  static constexpr std::int64_t kSlots = 3;
  // Sends a batch to the step of its form, as CompiledStep::stage does.
  using Stage = std::function<StagedFeeds(const Batch&, std::stop_token)>;

  // The first batch is that at `start`. `dataset` must outlive this. With `towers`,
  // batches have the samples of those alone. With `stage`, a second thread stages each batch while
  // the next one is gathered. `workers` threads gather a batch. Throws InvalidArgument
  // for fewer than 2 slots or 1 worker, or a plan of another number of samples or without that
  // batch or tower.
  Prefetcher(const Dataset& dataset, const BatchPlan& plan, BatchPlan::Position start = {},
             std::int64_t slots = kSlots, std::optional<TowerSpan> towers = {}, Stage stage = {},
             int workers = 1);
  // Stops the threads at their next batch and waits for them.
  ~Prefetcher();
  Prefetcher(const Prefetcher&) = delete;
  Prefetcher& operator=(const Prefetcher&) = delete;

  // Waits for the next batch, which is valid until the following call. A copy of one of its tensors
  // stays as it is, at the price of an allocation if it still exists at that call. Throws what
  // gathering or staging threw, once the batches before it are consumed, and again at every later
  // call.
  Batch& next();

 private:
  // A batch of one form.
  struct FormBatch {
    Batch batch;
    std::vector<std::byte*> memory;  // of batch.tensors
  };
  struct Slot {
    std::vector<FormBatch> batches;  // one per form
    std::size_t form = 0;            // that is filled
    FormBatch& filled() { return batches[form]; }
  };

  FormBatch make_form_batch(std::size_t form) const;
  // On the consumer's thread, because it looks at how many copies of a tensor there are.
  static void refresh(FormBatch& batch);
  Slot& slot(std::int64_t i) { return slots_[static_cast<std::size_t>(i % std::ssize(slots_))]; }
  void fill(Slot& slot, BatchPlan::Position position);
  void gather_all(std::stop_token stop);
  void stage_all(std::stop_token stop);

  const Dataset& dataset_;
  const BatchPlan batch_plan_;
  const BatchPlan::Position start_;
  const std::int64_t first_tower_, towers_;
  const Stage stage_;
  Gatherer gatherer_;
  std::vector<Slot> slots_;
  std::vector<std::int64_t> order_;  // of the epoch being gathered; the gathering thread's
  bool holding_ = false;             // the consumer has a batch; the consumer's

  std::mutex mutex_;
  std::condition_variable_any changed_;
  // Batches since the start: gathered, ready, and given back.
  std::int64_t gathered_ = 0, ready_ = 0, recycled_ = 0;
  std::exception_ptr gather_failure_;  // with `stage`: why the next batch cannot be gathered
  std::exception_ptr failure_;         // why the next batch will not be ready
  // Last: they start when all else is ready and are joined first.
  std::jthread gatherer_thread_, stager_thread_;
};

}  // namespace belfry
