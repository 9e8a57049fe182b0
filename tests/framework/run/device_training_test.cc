// Steps of data-parallel training on the devices of $BELFRY_TEST_GPUS, beside CPUs.
#include "belfry/tests/framework/run/gpu_test_support.h"
#include "belfry/tests/support/op_test.h"
#include "belfry/tests/support/test_devices.h"

namespace belfry {
namespace device_training_test {

class DeviceTraining : public testing::TestWithParam<int> {
 protected:
  void SetUp() override { BELFRY_NEED_DEVICES(GetParam()); }
};

TEST_P(DeviceTraining, LearnsWhatCpusLearnWithinRounding) {
  const int towers = GetParam();
  const Towers model(test::device(0).type->str(), towers);
  Session session(model.graph, test::on_devices(towers));
  const std::vector<Tensor> learned = model.train_in(session, 8), expected = on_cpus(towers, 8);
  ASSERT_EQ(learned.size(), expected.size());
  for (std::size_t i = 0; i < learned.size(); ++i)
    EXPECT_LE(difference(learned[i], expected[i]), 1e-5) << i;
  for (const Variable w : model.w) EXPECT_EQ(session.read(w), session.read(model.w[0]));
}

TEST_P(DeviceTraining, GivesTheSameBitsEachTime) {
  const int towers = GetParam();
  const Towers model(test::device(0).type->str(), towers);
  const auto learned = [&] {
    Session session(model.graph, test::on_devices(towers));
    return model.train_in(session, 8);
  };
  const std::vector<Tensor> first = learned();
  for (int i = 0; i < 3; ++i) EXPECT_EQ(learned(), first);
}

INSTANTIATE_TEST_SUITE_P(Towers, DeviceTraining, testing::Values(1, 2, 3, 8));

}  // namespace device_training_test
}  // namespace belfry
