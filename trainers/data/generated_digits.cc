#include "belfry/trainers/data/generated_digits.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <utility>

#include "belfry/framework/base/require.h"
#include "belfry/trainers/data/digit_glyphs_impl.h"
#include "belfry/trainers/util/counter_random.h"

namespace belfry::data {
namespace {

constexpr int kSide = static_cast<int>(kDigitSide);
constexpr int kPixels = kSide * kSide;

// How one sample is drawn.
struct Style {
  float bend[4];         // second-order terms
  float xx, xy, yx, yy;  // linear part, pixels per unit
  float dx, dy;          // centre, pixels
  float half_width;      // of the line, pixels
  float brightness;      // of the line, 0 to 255
  int noise;             // largest offset of a pixel
};

Style random_style(CounterRandom& random) {
  Style style;
  for (float& bend : style.bend) bend = random.uniform(-.4f, .4f);
  const float height = random.uniform(15.f, 21.f), width = height * random.uniform(.72f, 1.15f);
  // tan(angle / 2) gives sine and cosine without a library.
  const float t = random.uniform(-.21f, .21f), shear = random.uniform(-.35f, .3f);
  const float cosine = (1 - t * t) / (1 + t * t), sine = 2 * t / (1 + t * t);
  style.xx = width * cosine;
  style.yx = width * sine;
  style.xy = height * (shear * cosine - sine);
  style.yy = height * (shear * sine + cosine);
  style.dx = .5f * kSide + random.uniform(-2.2f, 2.2f);
  style.dy = .5f * kSide + random.uniform(-2.2f, 2.2f);
  style.half_width = random.uniform(.45f, 1.6f);
  style.brightness = random.uniform(110.f, 255.f);
  style.noise = static_cast<int>(random.below(64));
  return style;
}

GlyphPoint to_pixels(const Style& style, GlyphPoint p, CounterRandom& random) {
  constexpr float kShake = .035f;
  const float x =
      p.x + p.y * (style.bend[0] * p.x + style.bend[1] * p.y) + random.uniform(-kShake, kShake);
  const float y =
      p.y + p.x * (style.bend[2] * p.x + style.bend[3] * p.y) + random.uniform(-kShake, kShake);
  return {style.dx + style.xx * x + style.xy * y, style.dy + style.yx * x + style.yy * y};
}

// Squared distance of each pixel's centre to the nearest line so far.
using Distances = std::array<float, kPixels>;

// Lowers the distances around the line a-b, within `reach` pixels of it.
void draw_line(Distances& distances, GlyphPoint a, GlyphPoint b, float reach) {
  const auto clip = [](float v) { return std::clamp(static_cast<int>(v), 0, kSide); };
  const int left = clip(std::min(a.x, b.x) - reach), right = clip(std::max(a.x, b.x) + reach + 1);
  const int top = clip(std::min(a.y, b.y) - reach), bottom = clip(std::max(a.y, b.y) + reach + 1);
  const float ex = b.x - a.x, ey = b.y - a.y;
  const float scale = 1 / std::max(ex * ex + ey * ey, 1e-12f);
  for (int row = top; row < bottom; ++row) {
    float* line = distances.data() + row * kSide;
    const float py = static_cast<float>(row) + .5f - a.y;
    for (int column = left; column < right; ++column) {
      const float px = static_cast<float>(column) + .5f - a.x;
      const float along = std::clamp((px * ex + py * ey) * scale, 0.f, 1.f);
      const float qx = px - along * ex, qy = py - along * ey;
      line[column] = std::min(line[column], qx * qx + qy * qy);
    }
  }
}

// An anti-aliased line, plus noise of either sign.
void shade(const Distances& distances, const Style& style, CounterRandom& random,
           std::uint8_t* image) {
  constexpr int kPerDraw = 8;  // bytes of noise from 64 random bits
  static_assert(kPixels % kPerDraw == 0);
  for (int i = 0; i < kPixels; i += kPerDraw) {
    std::uint64_t bits = random.bits();
    for (int j = i; j < i + kPerDraw; ++j, bits >>= 8) {
      const float distance = std::sqrt(distances[static_cast<std::size_t>(j)]);
      const float ink = std::clamp(style.half_width + .5f - distance, 0.f, 1.f);
      const int noise = (static_cast<int>(bits & 255) - 128) * style.noise / 128;
      const int level = static_cast<int>(ink * style.brightness + .5f) + noise;
      image[j] = static_cast<std::uint8_t>(std::clamp(level, 0, 255));
    }
  }
}

int draw_label(CounterRandom& random) { return static_cast<int>(random.below(kDigitClasses)); }

void draw_digit(CounterRandom random, std::uint8_t* image) {
  const auto& forms = digit_glyphs()[static_cast<std::size_t>(draw_label(random))];
  const Glyph& glyph = forms[random.below(forms.size())];
  const Style style = random_style(random);
  Distances distances;
  distances.fill(1e6f);
  for (const Stroke& stroke : glyph) {
    GlyphPoint from = to_pixels(style, stroke[0], random);
    for (std::size_t i = 1; i < stroke.size(); ++i) {
      const GlyphPoint to = to_pixels(style, stroke[i], random);
      draw_line(distances, from, to, style.half_width + .5f);
      from = to;
    }
  }
  shade(distances, style, random, image);
}

CounterRandom random_of(std::uint64_t seed, std::int64_t index) {
  return CounterRandom(combine_key(seed, static_cast<std::uint64_t>(index)));
}

std::size_t checked_count(std::int64_t count) {
  require(count >= 0, "cannot generate ", count, " digits");
  return static_cast<std::size_t>(count);
}

}  // namespace

GeneratedDigits::GeneratedDigits(std::int64_t count, std::uint64_t seed, std::string description)
    : count_(count),
      seed_(seed),
      description_(std::move(description)),
      images_(host_allocator(), checked_count(count) * kPixels),
      once_(std::make_unique<std::once_flag[]>(checked_count(count))) {}

std::vector<Dataset::Field> GeneratedDigits::signature() const {
  return {{"image", DType::kF32, {kDigitSide, kDigitSide, 1}}, {"label", DType::kI32, {}}};
}

const std::uint8_t* GeneratedDigits::drawn(std::int64_t index) const {
  const auto i = static_cast<std::size_t>(index);
  auto* const image = reinterpret_cast<std::uint8_t*>(images_.data()) + i * kPixels;
  std::call_once(once_[i], [&] { draw_digit(random_of(seed_, index), image); });
  return image;
}

void GeneratedDigits::gather(std::span<const std::int64_t> indices,
                             std::span<std::byte* const> out) const {
  auto* pixels = reinterpret_cast<float*>(out[0]);
  auto* labels = reinterpret_cast<std::int32_t*>(out[1]);
  for (const std::int64_t index : indices) {
    require(index >= 0 && index < count_, "sample ", index, " of a dataset of ", count_);
    const std::uint8_t* const image = drawn(index);
    for (int i = 0; i < kPixels; ++i) pixels[i] = static_cast<float>(image[i]) * (1.0f / 255);
    pixels += kPixels;
    CounterRandom random = random_of(seed_, index);
    *labels++ = draw_label(random);
  }
}

}  // namespace belfry::data
