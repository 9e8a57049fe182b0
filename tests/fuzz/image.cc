// Input: a JPEG or PNG file.
#include "belfry/tests/fuzz/target.h"
#include "belfry/trainers/data/decode_image.h"

std::size_t belfry::test::largest_allowed(const std::uint8_t*, std::size_t size) {
  return mib_or_twice(size);
}

int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace belfry;
  constexpr std::int64_t kMost = 1 << 16, kSide = 4;
  const std::vector<std::byte> file = test::bytes_of({data, size});
  test::may_refuse([&] {
    const DecodedImage image = decode_image(file, kMost);
    test::check(image.height * image.width <= kMost, "too large");
    test::check(std::ssize(image.pixels) == 3 * image.height * image.width, "wrong size");
    std::vector<float> small(kSide * kSide * 3);
    resize_image(
        image,
        {.height = static_cast<double>(image.height), .width = static_cast<double>(image.width)},
        kSide, true, small);
    for (const float value : small)
      test::check(value >= -0.01f && value <= 255.01f, "a pixel beyond those of the image");
  });
  return 0;
}
