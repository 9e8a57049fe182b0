#include "belfry/trainers/util/interleaved.h"

#include <algorithm>

#include "belfry/trainers/util/statistics.h"

namespace belfry {

int Interleaved::add(std::function<void()> work) {
  ways_.push_back({std::move(work), {}});
  return static_cast<int>(ways_.size()) - 1;
}

void Interleaved::on_call(std::function<void(std::int64_t, std::int64_t)> f) {
  on_call_ = std::move(f);
}

void Interleaved::note_call() {
  ++made_;
  if (on_call_) on_call_(made_, all_);
}

void Interleaved::settle(const std::function<void()>& work) const {
  constexpr double kSeconds = 100e-6;
  const double start = now_();
  do work();
  while (now_() - start < kSeconds);
}

void Interleaved::run(int warmup, int iterations, double seconds) {
  constexpr int kMostRounds = 5;
  const int rounds = std::min(iterations, kMostRounds);
  made_ = 0;
  all_ = static_cast<std::int64_t>(ways_.size()) * (std::int64_t{warmup} + iterations);
  for (Way& way : ways_) {
    way.samples.clear();
    for (int i = 0; i < warmup; ++i) {
      way.work();
      note_call();
    }
  }
  for (int round = 0; round < rounds; ++round) {
    const int calls = iterations / rounds + (round < iterations % rounds ? 1 : 0);
    for (Way& way : ways_) {
      if (counts_alike_)
        way.work();
      else
        settle(way.work);
      std::vector<double>& samples = way.samples.emplace_back();
      double spent = 0;
      for (int i = 0; i < calls && (counts_alike_ || spent * rounds <= seconds); ++i) {
        const double start = now_();
        way.work();
        spent += samples.emplace_back(now_() - start);
        note_call();
      }
    }
  }
}

double Interleaved::seconds(int way) const {
  std::vector<double> all;
  for (const auto& round : ways_.at(static_cast<std::size_t>(way)).samples)
    all.insert(all.end(), round.begin(), round.end());
  return median(all);
}

std::vector<double> Interleaved::rounds(int way) const {
  std::vector<double> medians;
  for (const auto& round : ways_.at(static_cast<std::size_t>(way)).samples)
    medians.push_back(median(round));
  return medians;
}

}  // namespace belfry
