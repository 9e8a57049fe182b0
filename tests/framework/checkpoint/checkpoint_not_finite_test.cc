// Checkpoints of values that are not finite.
#include <cmath>
#include <limits>

#include "belfry/tests/framework/checkpoint/checkpoint_test_support.h"

namespace belfry {
namespace checkpoint_not_finite_test {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

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

TEST_F(NotFiniteTest, AreRefusedOnDemand) {
  for (const float value : {kNan, kInfinity, -kInfinity}) {
    set_element_4(value);
    const std::string text = message_of<NotFiniteError>([&] {
      save_checkpoint(session_, path_, JsonValue::object(), files_, {.refuse_not_finite = true});
    });
    EXPECT_THAT(text, HasSubstr("'fc/w' f32[2,3] (built at"));
    EXPECT_THAT(text, HasSubstr(std::isnan(value) ? "nan at element 4" : "inf at element 4"));
    EXPECT_THAT(text, HasSubstr("so nothing was saved"));
    EXPECT_THAT(listed(folder_), IsEmpty());
  }
}

// Such as those of a mask.
TEST_F(NotFiniteTest, AreOnPurposeIfTheyAreInfiniteWeightsThatAreNotTrained) {
  Graph graph;
  const Variable mask =
      variable(graph, "mask", {2}, {.initializer = init::zeros(), .trainable = false});
  Session session(graph);
  const auto save = [&](float value) {
    session.write(mask, Tensor({2}, std::vector<float>{0, value}));
    save_checkpoint(session, path_, JsonValue::object(), files_, {.refuse_not_finite = true});
  };
  EXPECT_THROW(save(kNan), NotFiniteError);
  save(-kInfinity);
  testing::internal::CaptureStderr();
  restore_checkpoint(session, path_, files_);
  EXPECT_THAT(testing::internal::GetCapturedStderr(), testing::Not(HasSubstr("finite")));
}

TEST_F(NotFiniteTest, AreSavedWithAWarning) {
  set_element_4(kNan);
  testing::internal::CaptureStderr();
  save_checkpoint(session_, path_);
  EXPECT_THAT(testing::internal::GetCapturedStderr(),
              AllOf(HasSubstr("W 'fc/w'"), HasSubstr("nan at element 4"), HasSubstr(path_)));
  EXPECT_TRUE(std::isnan(saved_weight().data<float>()[4]));
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
