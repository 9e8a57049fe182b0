#include "belfry/ops/conv1d.h"

#include "belfry/framework/base/require.h"
#include "belfry/ops/convolution/avg_pool.h"
#include "belfry/ops/convolution/conv2d.h"
#include "belfry/ops/convolution/max_pool.h"
#include "belfry/ops/reshape.h"

namespace belfry {
namespace {

// A call: its function and its line.
struct Call1d {
  const char* function;
  At at;
};

// Sequences [n, w, c], or filters [out, k, in], as images of height 1.
Output as_images(const Call1d& call, const char* what, Output x) {
  const Shape& shape = x.shape();
  require(shape.rank() == 3, call.function, " (", call.at.site, "): takes ", what, ", not ",
          x.type());
  const auto unknown = [&](std::size_t axis) { return shape[axis] == kUnknownSize; };
  require(unknown(0) + unknown(1) + unknown(2) <= 1, call.function, " (", call.at.site,
          "): two sizes of ", x.type(),
          " are unknown; give the placeholder its width and channels");
  return reshape(x, {shape[0], 1, shape[1], shape[2]}, call.at.site);
}

Output as_sequences(const Call1d& call, Output y) {
  const Shape& shape = y.shape();
  return reshape(y, {shape[0], shape[2], shape[3]}, call.at.site);
}

Padding of_sequences(const Call1d& call, const Padding& padding) {
  require(padding.fits_sequences(), call.function, " (", call.at.site,
          "): the padding of sequences is one number, or {before, after}, not ", padding.str());
  return padding.of_sequence();
}

PoolOptions pool_options_of(const Call1d& call, const Pool1dOptions& options) {
  return {.window = {1, options.window},
          .stride = {1, options.stride},
          .padding = of_sequences(call, options.padding),
          .count_include_pad = options.count_include_pad};
}

constexpr const char* kSequences = "sequences [n,w,c]";

}  // namespace

Output conv1d(Output x, Output filter, Conv1dOptions options, At at) {
  const Call1d call{"conv1d", at};
  const Output images = as_images(call, kSequences, x);
  const Output y = conv2d(images, as_images(call, "filters [out,k,in/groups]", filter),
                          {.stride = {1, options.stride},
                           .padding = of_sequences(call, options.padding),
                           .dilation = {1, options.dilation},
                           .groups = options.groups},
                          at);
  return as_sequences(call, y);
}

Output max_pool1d(Output x, Pool1dOptions options, At at) {
  const Call1d call{"max_pool1d", at};
  const Output images = as_images(call, kSequences, x);
  return as_sequences(call, max_pool(images, pool_options_of(call, options), at));
}

Output avg_pool1d(Output x, Pool1dOptions options, At at) {
  const Call1d call{"avg_pool1d", at};
  const Output images = as_images(call, kSequences, x);
  return as_sequences(call, avg_pool(images, pool_options_of(call, options), at));
}

}  // namespace belfry
