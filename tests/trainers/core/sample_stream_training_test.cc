// Trainings with records of which nobody knows how many there are.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "belfry/tests/support/process_threads.h"
#include "belfry/tests/trainers/core/uneven_support.h"
#include "belfry/tests/trainers/data/idx_files.h"
#include "belfry/trainers/core/training_checkpoint.h"
#include "belfry/trainers/data/sample_stream.h"

namespace belfry {
namespace sample_stream_training_test {

using test::message_of;
using test::TemporaryFolder;
using ::testing::HasSubstr;

// The records of smooth_data(), `count` of them.
class SmoothStream final : public SampleStream {
 public:
  explicit SmoothStream(std::int64_t count) : data_(smooth_data(count)) {}
  bool next(const SampleFields& to) override {
    if (number_ == data_->size()) return false;
    const std::vector<Tensor> record = gather_tensors(*data_, std::vector{number_++});
    for (std::size_t f = 0; f < record.size(); ++f)
      std::ranges::copy(record[f].data<double>(), to.get<double>(f).begin());
    return true;
  }

 private:
  std::unique_ptr<Dataset> data_;
  std::int64_t number_ = 0;
};

std::unique_ptr<Dataset> smooth_stream(std::int64_t count) {
  return stream_samples({.fields = smooth_data(1)->signature(),
                         .open = [count] { return std::make_unique<SmoothStream>(count); },
                         .buffer = 32});
}

TrainerOptions stream_options(int devices, std::int64_t steps) {
  TrainerOptions options{.model = smooth_model, .devices = cpus(devices)};
  options.batch_size = 8 / devices;
  options.max_steps = steps;
  options.shards = 4;
  options.optimizer = adam(0.01);
  return options;
}

std::string hash_of(Trainer& trainer) { return state_hash(trainer.session(), trainer.graph()); }

std::string hash_after(int devices, int workers = 1,
                       const std::shared_ptr<Processes>& processes = nullptr) {
  const auto data = smooth_stream(1000);
  TrainerOptions options = stream_options(devices, 10);
  if (processes) {
    options.batch_size /= processes->size();
    options.session.processes = processes;
    options.session.threads = 1;
  }
  options.data_workers = workers;
  Trainer trainer(find_trainer("replicated"), options, *data);
  trainer.train();
  EXPECT_EQ(trainer.steps(), 10);
  return hash_of(trainer);
}

TEST(SampleStreamTraining, GivesTheSameBitsForAnyDevicesAndDataWorkers) {
  const std::string one = hash_after(1);
  EXPECT_EQ(hash_after(2), one);
  EXPECT_EQ(hash_after(4, 3), one);
  EXPECT_EQ(hash_after(1, 0), one);
  EXPECT_EQ(hash_after(2, 0), one);
}

// Each process opens the stream, and takes its part of each batch. All end with the stream.
TEST(SampleStreamTraining, GivesTheBitsOfOneProcessInSeveral) {
  const std::string one = hash_after(4);
  test::run_processes(2, [&](const std::shared_ptr<Processes>& processes) {
    for (const int workers : {0, 1}) EXPECT_EQ(hash_after(2, workers, processes), one);
    const auto data = smooth_stream(100);
    TrainerOptions options = stream_options(2, 1000);
    options.batch_size = 2;
    options.session.processes = processes;
    options.session.threads = 1;
    Trainer trainer(find_trainer("replicated"), std::move(options), *data);
    trainer.train();
    EXPECT_EQ(trainer.steps(), 12);
  });
}

// 100 records fill three buffers of 32, of four steps each; the last four are left out.
TEST(SampleStreamTraining, EndsWhereTheStreamDoes) {
  for (const int workers : {0, 1}) {
    const auto data = smooth_stream(100);
    TrainerOptions options = stream_options(2, 1000);
    options.data_workers = workers;
    Trainer trainer(find_trainer("replicated"), std::move(options), *data);
    trainer.train();
    EXPECT_EQ(trainer.steps(), 12);
    EXPECT_EQ(trainer.progress().epochs(), 3);
  }
}

TEST(SampleStreamTraining, ResumesWithTheRecordsThatCameNext) {
  const TemporaryFolder folder;
  const std::string path = folder.path() + "/checkpoint";
  {
    const auto data = smooth_stream(1000);
    Trainer half(find_trainer("replicated"), stream_options(1, 6), *data);
    half.train();
    save_training(half, path);
  }
  for (const int workers : {0, 1}) {
    const auto data = smooth_stream(1000);
    TrainerOptions options = stream_options(1, 10);
    options.data_workers = workers;
    Trainer rest(find_trainer("replicated"), std::move(options), *data);
    restore_training(rest, path, OtherRuns::kRefuse);
    rest.train();
    EXPECT_EQ(hash_of(rest), hash_after(1));
  }
}

TEST(SampleStreamTraining, MustBeToldHowLong) {
  const auto data = smooth_stream(100);
  EXPECT_THAT(message_of<InvalidArgument>(
                  [&] { Trainer(find_trainer("replicated"), stream_options(1, 0), *data); }),
              HasSubstr("say how many steps"));
  const auto train = smooth_data(100);
  EXPECT_THAT(message_of<InvalidArgument>([&] {
                Trainer(find_trainer("replicated"), stream_options(1, 5), *train, data.get());
              }),
              HasSubstr("an evaluation takes data of a known size"));
}

}  // namespace sample_stream_training_test
}  // namespace belfry
