// Checkpoints of values that are not finite.
#include <cmath>
#include <limits>

#include "belfry/tests/framework/checkpoint/checkpoint_test_support.h"

namespace belfry {
namespace checkpoint_not_finite_test {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
constexpr float kInfinity = std::numeric_limits<float>::infinity();

class NotFiniteTest : public CheckpointTest {
 protected:
  NotFiniteTest() : session_(model_.graph) { fill(session_, model_); }
  void set_element_4(float value) {
    Tensor weight = kWeightValues;
    weight.mutable_data<float>()[4] = value;
    session_.write(model_.w[0], weight);
  }
  Tensor saved_weight() {
    const Model fresh(1);
    Session session(fresh.graph);
    restore_checkpoint(session, path_);
    return session.read(fresh.w[0]);
  }

  const Model model_{1};
  Session session_;
};

TEST_F(NotFiniteTest, NeverReplaceFiniteOnes) {
  save_checkpoint(session_, path_);
  for (const float value : {kNan, kInfinity, -kInfinity}) {
    set_element_4(value);
    const std::string text = message_of<InvalidArgument>([&] { save_checkpoint(session_, path_); });
    EXPECT_THAT(text, HasSubstr("'fc/w' f32[2,3] (built at"));
    EXPECT_THAT(text, HasSubstr(std::isnan(value) ? "nan at element 4" : "inf at element 4"));
    EXPECT_THAT(text, HasSubstr(path_ + " was kept; save to another path"));
    EXPECT_EQ(saved_weight(), kWeightValues);
    EXPECT_THAT(listed(folder_), ElementsAre("run"));
  }
  set_element_4(7);
  save_checkpoint(session_, path_);
  EXPECT_EQ(saved_weight().data<float>()[4], 7);
}

TEST_F(NotFiniteTest, NeverReplaceTheCheckpointThatACrashLeftUnderItsOldName) {
  save_checkpoint(session_, path_);
  files_.rename(path_, path_ + ".belfry-old");
  set_element_4(kNan);
  EXPECT_THROW(save_checkpoint(session_, path_), InvalidArgument);
  EXPECT_EQ(saved_weight(), kWeightValues);
}

TEST_F(NotFiniteTest, AreSavedWithAWarningWhereNothingIsLost) {
  set_element_4(kNan);
  testing::internal::CaptureStderr();
  save_checkpoint(session_, path_);
  EXPECT_THAT(testing::internal::GetCapturedStderr(),
              AllOf(HasSubstr("W 'fc/w'"), HasSubstr("nan at element 4"), HasSubstr(path_)));
  set_element_4(kInfinity);
  save_checkpoint(session_, path_);
  EXPECT_EQ(saved_weight().data<float>()[4], kInfinity) << "the one before was as bad";
}

TEST_F(NotFiniteTest, OfOneVariableDoNotExcuseThoseOfAnother) {
  Graph graph;
  const Variable mask = variable(graph, "mask", {1}, {.trainable = false});
  const Variable w = variable(graph, "w", {1});
  Session session(graph);
  session.write(mask, floats({-kInfinity}));
  session.write(w, floats({1}));
  save_checkpoint(session, path_);
  save_checkpoint(session, path_);
  session.write(w, floats({kNan}));
  EXPECT_THAT(message_of<InvalidArgument>([&] { save_checkpoint(session, path_); }),
              HasSubstr("'w' f32[1]"));
}

TEST_F(NotFiniteTest, NeverReplaceACheckpointThatCannotBeRead) {
  save_checkpoint(session_, path_);
  write(file("model.safetensors"), {});
  set_element_4(kNan);
  EXPECT_THROW(save_checkpoint(session_, path_), InvalidArgument);
  EXPECT_TRUE(files_.read(file("model.safetensors")).empty());
}

TEST_F(NotFiniteTest, AreNamedWhenTheyAreRestored) {
  set_element_4(kNan);
  save_checkpoint(session_, path_);
  testing::internal::CaptureStderr();
  restore_checkpoint(session_, path_);
  EXPECT_THAT(testing::internal::GetCapturedStderr(),
              HasSubstr("has values that are not finite: 'fc/w' (nan at element 4)"));
}

}  // namespace checkpoint_not_finite_test
}  // namespace belfry
