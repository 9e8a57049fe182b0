// Variable and Read: the storage of a variable and its value. Made by variable() and Variable.
#pragma once
#include "belfry/framework/graph/graph.h"

namespace belfry {

extern const Op kVariable;
extern const Op kRead;

struct VariableNodeOptions {
  Shape shape;
  DType dtype = DType::kF32;
};

}  // namespace belfry
