#include "belfry/trainers/data/generated_images.h"

#include <array>
#include <cmath>

#include "belfry/framework/base/require.h"
#include "belfry/framework/base/text.h"
#include "belfry/trainers/util/counter_random.h"

namespace belfry::data {
namespace {

constexpr std::size_t kColours = 3;
constexpr int kWavesOfClass = 2;

// A wave over an image of height and width 1.
struct Wave {
  float down, right;  // periods
  std::array<float, kColours> colour;
};

// From -1 to 1 and back, once per period. No sine, whose last digit varies between libraries.
float triangle(float turns) { return 4 * std::fabs(turns - std::floor(turns) - 0.5f) - 1; }

std::array<Wave, kWavesOfClass> waves_of(int label) {
  constexpr std::uint64_t kKey = 0x1a6e5;
  CounterRandom random(combine_key(kKey, static_cast<std::uint64_t>(label)));
  std::array<Wave, kWavesOfClass> waves;
  for (Wave& wave : waves) {
    wave.down = random.uniform(-5, 5);
    wave.right = random.uniform(-5, 5);
    for (float& part : wave.colour) part = random.uniform(-1, 1);
  }
  return waves;
}

class Generated final : public Dataset {
 public:
  explicit Generated(GeneratedImages wanted) : wanted_(wanted) {
    for (int label = 0; label < wanted.classes; ++label) waves_.push_back(waves_of(label));
  }

  std::vector<Field> signature() const override {
    return {{"image", DType::kF32, {wanted_.side, wanted_.side, kColours}},
            {"label", DType::kI32, {}}};
  }
  std::int64_t size() const override { return wanted_.count; }
  std::string describe() const override {
    return cat(wanted_.count, " generated images of ", wanted_.classes, " classes, seed ",
               wanted_.seed, " (no data directory given)");
  }

  void gather(std::span<const std::int64_t> indices,
              std::span<std::byte* const> out) const override {
    auto* pixels = reinterpret_cast<float*>(out[0]);
    auto* labels = reinterpret_cast<std::int32_t*>(out[1]);
    for (const std::int64_t sample : indices) {
      require(sample >= 0 && sample < size(), "sample ", sample, " of a dataset of ", size());
      CounterRandom random(combine_key(wanted_.seed, static_cast<std::uint64_t>(sample)));
      *labels =
          static_cast<std::int32_t>(random.below(static_cast<std::uint64_t>(wanted_.classes)));
      pixels = draw(waves_[static_cast<std::size_t>(*labels++)], random, pixels);
    }
  }

 private:
  // Returns where the image ends.
  float* draw(const std::array<Wave, kWavesOfClass>& waves, CounterRandom& random,
              float* to) const {
    std::array<float, kWavesOfClass> phases;
    for (float& phase : phases) phase = random.uniform(0, 1);
    const float brightness = random.uniform(0.5f, 1);
    const float step = 1 / static_cast<float>(wanted_.side);
    for (std::int64_t y = 0; y < wanted_.side; ++y)
      for (std::int64_t x = 0; x < wanted_.side; ++x, to += kColours) {
        for (std::size_t c = 0; c < kColours; ++c) to[c] = random.uniform(-0.5f, 0.5f);
        for (std::size_t w = 0; w < waves.size(); ++w) {
          const float turns =
              (static_cast<float>(y) * waves[w].down + static_cast<float>(x) * waves[w].right) *
                  step +
              phases[w];
          const float height = brightness * triangle(turns);
          for (std::size_t c = 0; c < kColours; ++c) to[c] += height * waves[w].colour[c];
        }
      }
    return to;
  }

  const GeneratedImages wanted_;
  std::vector<std::array<Wave, kWavesOfClass>> waves_;  // per class
};

}  // namespace

std::unique_ptr<Dataset> generated_images(GeneratedImages wanted) {
  constexpr std::int64_t kMostSide = 16384;
  require(wanted.side >= 1 && wanted.side <= kMostSide && wanted.classes >= 1 && wanted.count >= 1,
          "cannot generate ", wanted.count, " images of ", wanted.side, " pixels and ",
          wanted.classes, " classes");
  return std::make_unique<Generated>(wanted);
}

}  // namespace belfry::data
