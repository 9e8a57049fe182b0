// Data-parallel training by the GPU module itself: what it calls breaks no rule of CUDA.
#include <algorithm>

#include "belfry/framework/segments.h"
#include "belfry/tests/recorder/recorder_support.h"

namespace belfry::recorder {
namespace training_test {

using RecorderTraining = RecorderTest;

int captured_segments(const Plan& plan) {
  const auto segments = cut_segments(plan, deal_lanes(plan, 1));
  return static_cast<int>(std::ranges::count_if(segments, &Segment::captured));
}

TEST_F(RecorderTraining, RunsOnOneGpu) {
  const Towers model("GPU", 1);
  Session session(model.graph, on_gpus({1, 1}));
  Step& step = session.prepare(model.fetches(), model.feed_types());
  for (int i = 0; i < 3; ++i) step.run(model.feeds(i));
  EXPECT_EQ(recorder().count("cudaGraphLaunch"), 2 * captured_segments(step.plan()));
  const Recorder::Steady steady;
  for (int i = 3; i < 6; ++i) step.run(model.feeds(i));
}

}  // namespace training_test
}  // namespace belfry::recorder
