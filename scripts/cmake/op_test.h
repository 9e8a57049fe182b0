// check_op() and what belongs to it, for tests of ops outside the tree:
//
//   TEST(Swish, KeepsItsContract) {
//     check_op({.build = [](Inputs x) { return swish(x[0]); }, .inputs = {random_values({5, 7})}});
//   }
//
// In CMake, find_package(GTest) and link belfry::op_test, which compiles the checks into the test.
// They report by GoogleTest.
#pragma once
#include "belfry/tests/support/op_test.h"  // IWYU pragma: export
