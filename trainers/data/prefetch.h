// Prepares the next batches while training uses the current one.
#pragma once
#include <condition_variable>
#include <exception>
#include <functional>
#include <memory>
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
  StagedFeeds staged = {};  // if the Prefetcher stages: the step's runner takes them

  std::span<const Tensor> tower(std::int64_t t) const {
    return std::span(tensors).subspan(static_cast<std::size_t>(t * fields),
                                      static_cast<std::size_t>(fields));
  }
};

// Bytes of a batch of `samples` samples.
std::int64_t bytes_of_batch(const Dataset& dataset, std::int64_t samples);

// Consecutive towers of a BatchPlan.
struct TowerSpan {
  TowerSpan(std::int64_t tower) : first(tower) {}  // NOLINT: one tower is a span, too
  TowerSpan(std::int64_t begin, std::int64_t towers) : first(begin), count(towers) {}
  std::int64_t first, count = 1;
};

// An endless stream of batches in the order of a BatchPlan, epoch after epoch, for all towers or
// for some. One thread gathers batches into a ring of slots, and stages them. Without data workers
// the consumer's thread does so when it needs a batch. The batches do not depend on timing or on
// the numbers of slots and of data workers. After the constructor neither side allocates. One
// thread consumes.
class Prefetcher {
 public:
  static constexpr std::int64_t kSlots = 3;
  // Sends a batch to the step of its form, as CompiledStep::stage does.
  using Stage = std::function<StagedFeeds(const Batch&, std::stop_token)>;

  // The first batch is that at `start`. `dataset` must outlive this. With `towers`, batches have
  // only the samples of these towers. With `stage`, stages each batch. `workers` threads gather a
  // batch; with 0 no thread is started, and there are 2 slots. Batches get their memory from
  // `memory`, such as feed_memory() (gpu_memory.h), from which GPUs copy; null: from
  // host_allocator(). Throws InvalidArgument for fewer than 2 slots, a negative number of workers,
  // or a plan of another number of samples or without the first batch or the towers.
  Prefetcher(const Dataset& dataset, const BatchPlan& plan, BatchPlan::Position start = {},
             std::int64_t slots = kSlots, std::optional<TowerSpan> towers = {}, Stage stage = {},
             int workers = 1, std::shared_ptr<Allocator> memory = nullptr);
  // Stops the thread at its next batch and waits for it.
  ~Prefetcher();
  Prefetcher(const Prefetcher&) = delete;
  Prefetcher& operator=(const Prefetcher&) = delete;

  // Waits for the next batch, which is valid until the following call. A copy of one of its tensors
  // stays as it is; if the copy still exists at that call, the call allocates. Throws the error of
  // gathering or staging once the batches before it are consumed, and again at every later call.
  Batch& next();
  // Waits for the next batch, and says whether there is none as a stream has ended. The batch of
  // next() stays valid.
  bool is_at_end();

 private:
  // A batch of one form.
  struct FormBatch {
    Batch batch;
    std::vector<std::byte*> memory;  // of batch.tensors
  };
  struct Slot {
    std::vector<FormBatch> batches;  // one per form
    std::size_t form = 0;            // the form that is filled
    FormBatch& filled() { return batches[form]; }
  };

  FormBatch make_form_batch(std::size_t form) const;
  // Runs on the consumer's thread, because it counts the copies of a tensor.
  void refresh(FormBatch& batch) const;
  Slot& slot(std::int64_t i) { return slots_[static_cast<std::size_t>(i % std::ssize(slots_))]; }
  bool has_next();
  bool make_next(std::stop_token stop);
  void fill(Slot& slot, BatchPlan::Position position);
  void gather(const DataPass& pass, std::span<const std::int64_t> rows,
              std::span<std::byte* const> out, std::span<const Tensor> tensors);
  void make_all(std::stop_token stop);

  const Dataset& dataset_;
  const BatchPlan batch_plan_;
  const LengthBuckets* const buckets_;  // of the data; null if there are none
  const std::int64_t first_tower_, towers_;
  const Stage stage_;
  const std::shared_ptr<Allocator> memory_;
  Gatherer gatherer_;
  std::vector<Slot> slots_;
  // Of the thread that gathers: the next batch, the epoch that is shuffled, and its order.
  BatchPlan::Position position_;
  std::int64_t shuffled_ = -1;
  std::vector<std::int64_t> order_;
  std::vector<Tensor> longest_;  // with buckets: rows of a tower before they are cut; as above
  bool holding_ = false;         // the consumer has a batch; the consumer's

  std::mutex mutex_;
  std::condition_variable_any changed_;
  // Batches since the start: ready, and given back.
  std::int64_t ready_ = 0, recycled_ = 0;
  std::exception_ptr failure_;  // why the next batch will not be ready
  // Last: it starts when all else is ready and is joined first. Without data workers there is none.
  std::jthread thread_;
};

}  // namespace belfry
