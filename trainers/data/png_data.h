// Checks the data of a PNG before they are decoded.
#pragma once
#include <cstddef>
#include <span>

namespace belfry {

// Throws InvalidArgument if the data of a PNG inflate to more than its pixels take, because libpng
// would inflate all of them. To check this it inflates them itself, unless they are too short to
// matter.
void check_png_data(std::span<const std::byte> file);

}  // namespace belfry
