#include "belfry/framework/base/find_word.h"

#include "belfry/framework/checkpoint/weight_choice.h"
#include "belfry/framework/graph/variable_role.h"
#include "belfry/tests/framework/framework_test_support.h"

namespace belfry {
namespace find_word_test {

TEST(FindWord, GivesTheValueOfEachName) {
  for (const WeightChoice choice :
       {WeightChoice::kValidated, WeightChoice::kRaw, WeightChoice::kAverage})
    EXPECT_EQ(find_weight_choice(name_of(choice)), choice);
  for (const VariableRole role :
       {VariableRole::kWeight, VariableRole::kAverage, VariableRole::kState})
    EXPECT_EQ(find_variable_role(name_of(role)), role);
}

TEST(FindWord, RefusesOtherNamesWithThoseThereAre) {
  EXPECT_EQ(message_of<InvalidArgument>([] { find_weight_choice("best"); }),
            "there is no choice of weights 'best'; there are validated, raw, average");
  EXPECT_EQ(message_of<InvalidArgument>([] { find_variable_role("slot\n"); }),
            "there is no role of variables 'slot?'; there are weight, average, state");
}

}  // namespace find_word_test
}  // namespace belfry
