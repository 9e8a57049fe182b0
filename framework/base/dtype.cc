#include "belfry/framework/base/dtype.h"

namespace belfry {

std::string_view name_of(DType dtype) {
  constexpr std::string_view kNames[] = {"f16", "bf16", "f32", "f64", "i32", "i64", "u8", "bool"};
  return kNames[static_cast<std::size_t>(dtype)];
}

}  // namespace belfry
