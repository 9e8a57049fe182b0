#include "byte_limit.h"

#include <algorithm>

#include "scale.h"

namespace belfry {
namespace {

// Moves no value far, however often.
constexpr float kFactor = 1.0000001F;

}  // namespace

ByteLimit::ByteLimit(int buffers, std::int64_t bytes, int workers)
    : elements_(std::max<std::int64_t>(1, bytes / static_cast<std::int64_t>(sizeof(float)))),
      memory_("the byte limit"),
      pool_(workers) {
  for (int k = 0; k < buffers; ++k) {
    buffers_.emplace_back(memory_, static_cast<std::size_t>(elements_) * sizeof(float));
    streams_.push_back(reinterpret_cast<float*>(buffers_.back().data()));
    std::fill_n(streams_.back(), elements_, 1.F);
  }
}

void ByteLimit::each_part(const std::function<void(std::int64_t, std::int64_t)>& scale) {
  constexpr std::int64_t kLine = 16;  // elements of a cache line
  const std::int64_t lines = (elements_ + kLine - 1) / kLine;
  const std::int64_t workers = pool_.workers();
  pool_.run(pool_.workers(), [&](int w) {
    scale(lines * w / workers * kLine, std::min(elements_, lines * (w + 1) / workers * kLine));
  });
}

void ByteLimit::streams_in_turn() {
  each_part([this](std::int64_t begin, std::int64_t end) {
    for (float* const& stream : streams_) scale_in_place({&stream, 1}, kFactor, begin, end);
  });
}

void ByteLimit::streams_together() {
  each_part([this](std::int64_t begin, std::int64_t end) {
    scale_in_place(streams_, kFactor, begin, end);
  });
}

}  // namespace belfry
